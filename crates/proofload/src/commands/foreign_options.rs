//! Options of wrk and ab that are named differently here. Some have no effect because they are the default here; for the
//! others the error message names the option to use.

use clap::Args;

/// Options of wrk and ab that the help does not show.
#[derive(Debug, Args)]
pub(super) struct ForeignOptions {
    /// wrk: a Lua script
    #[arg(short = 's', long = "script", value_name = "FILE", hide = true)]
    wrk_script: Option<String>,
    /// wrk: show percentiles, which is always done
    // Accepted and ignored.
    #[allow(dead_code)]
    #[arg(long = "latency", hide = true)]
    wrk_latency: bool,
    /// ab: keep connections, which is the default
    #[arg(short = 'k', hide = true)]
    ab_keepalive: bool,
    /// ab: file to post
    #[arg(short = 'p', value_name = "FILE", hide = true)]
    ab_post: Option<String>,
    /// ab: method
    #[arg(short = 'm', value_name = "METHOD", hide = true)]
    ab_method: Option<String>,
}

impl ForeignOptions {
    /// Options that proofload does not accept, each with the option to use instead.
    pub(super) fn mistakes(&self, no_keepalive: bool) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.wrk_script.is_some() {
            mistakes.push(
                "-s: Lua scripts are not supported; describe the request with -X, -H and --body, and the load with --rate, \
                 --stage and --think-time"
                    .to_owned(),
            );
        }
        if self.ab_keepalive && no_keepalive {
            mistakes.push("-k keeps connections, --no-keepalive does not: leave out one".to_owned());
        }
        mistakes.extend(self.ab_post.iter().map(|file| format!("-p: write --body @{file}")));
        mistakes.extend(self.ab_method.iter().map(|method| format!("-m: write -X {method}")));
        mistakes
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        foreign: ForeignOptions,
    }

    fn mistakes(line: &str, no_keepalive: bool) -> Vec<String> {
        let words = ["http"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().foreign.mistakes(no_keepalive)
    }

    #[test]
    fn mistakes_name_the_option_to_use() {
        let found = mistakes("-s report.lua -p b.json -m PUT", false);
        assert!(found[0].starts_with("-s: Lua scripts are not supported"), "{found:?}");
        assert_eq!(found[1..], ["-p: write --body @b.json", "-m: write -X PUT"]);
    }

    #[test]
    fn defaults_are_accepted() {
        assert!(mistakes("-k --latency", false).is_empty());
        assert!(mistakes("-k", true)[0].contains("--no-keepalive"));
    }
}
