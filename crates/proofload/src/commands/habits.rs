//! What users of wrk and ab type out of habit, where it is called otherwise here: they are told the way, or it does
//! nothing because it is so anyhow.

use clap::Args;

/// Options of wrk and ab that are not shown.
#[derive(Debug, Args)]
pub(super) struct HabitArgs {
    /// wrk: a Lua script
    #[arg(short = 's', long = "script", value_name = "FILE", hide = true)]
    wrk_script: Option<String>,
    /// wrk: show percentiles, as is done anyhow
    // Taken from the command line, and for nothing.
    #[allow(dead_code)]
    #[arg(long = "latency", hide = true)]
    wrk_latency: bool,
    /// ab: keep connections, as is done anyhow
    #[arg(short = 'k', hide = true)]
    ab_keepalive: bool,
    /// ab: a file to post
    #[arg(short = 'p', value_name = "FILE", hide = true)]
    ab_post: Option<String>,
    /// ab: the body's type
    #[arg(short = 'T', value_name = "TYPE", hide = true)]
    ab_content_type: Option<String>,
    /// ab: the method
    #[arg(short = 'm', value_name = "METHOD", hide = true)]
    ab_method: Option<String>,
}

impl HabitArgs {
    /// What cannot be done as it was typed, each with the way to do it.
    pub(super) fn mistakes(&self, no_keepalive: bool) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.wrk_script.is_some() {
            mistakes.push(
                "-s: Lua scripts are not run; say the request with -X, -H and --body, and other loads with --rate, --stage \
                 and --think-time"
                    .to_owned(),
            );
        }
        if self.ab_keepalive && no_keepalive {
            mistakes.push("-k: it keeps connections, and --no-keepalive does not: leave out one".to_owned());
        }
        mistakes.extend(self.ab_post.iter().map(|file| format!("-p: write --body @{file}")));
        let content_type = self.ab_content_type.iter();
        mistakes.extend(content_type.map(|kind| format!("-T: write -H 'Content-Type: {kind}'")));
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
        habits: HabitArgs,
    }

    fn mistakes(line: &str, no_keepalive: bool) -> Vec<String> {
        let words = ["http"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().habits.mistakes(no_keepalive)
    }

    #[test]
    fn who_comes_from_another_tool_is_told_the_way() {
        let told = mistakes("-s report.lua -p b.json -T text/html -m PUT", false);
        assert!(told[0].starts_with("-s: Lua scripts are not run"), "{told:?}");
        assert_eq!(
            told[1..],
            ["-p: write --body @b.json", "-T: write -H 'Content-Type: text/html'", "-m: write -X PUT"]
        );
    }

    #[test]
    fn what_is_so_anyhow_does_nothing() {
        assert!(mistakes("-k --latency", false).is_empty());
        assert!(mistakes("-k", true)[0].contains("--no-keepalive"));
    }
}
