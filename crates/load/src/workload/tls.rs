//! The options of TLS.

use record::TlsPlan;
use url::Url;

use super::{HttpWorkload, OPTIONS, TLS, text::Mistakes};
use crate::tls_config::TlsConfig;

impl HttpWorkload {
    /// The TLS options; `None` for a plain URL.
    pub(super) fn tls(&self, url: Option<&Url>, mistakes: &mut Mistakes) -> Option<TlsPlan> {
        let url = url?;
        if url.scheme() != "https" {
            self.refuse_options_of_tls(mistakes);
            return None;
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let list = |text: &str| text.split(',').map(|part| part.trim().to_owned()).collect();
        let plan = TlsPlan {
            server_name: self.sni.as_deref().unwrap_or(host).to_owned(),
            verify: !self.insecure,
            authorities: self.cacert.as_ref().map(Into::into),
            certificate: self.cert.as_ref().map(Into::into),
            key: self.key.as_ref().map(Into::into),
            min_version: self.tls_min.as_deref().unwrap_or("1.2").to_owned(),
            max_version: self.tls_max.as_deref().unwrap_or("1.3").to_owned(),
            ciphers: self.ciphers.as_deref().map(list).unwrap_or_default(),
            resumption: !self.no_resumption,
            alpn: match self.alpn.as_deref() {
                None => vec!["http/1.1".to_owned()],
                Some("none") => Vec::new(),
                Some(text) => list(text),
            },
        };
        if plan.alpn.iter().any(|name| name == "h2") {
            mistakes.add("alpn", "requests are of HTTP/1.1, not of HTTP/2; leave h2 out");
        }
        if self.insecure && self.cacert.is_some() {
            mistakes
                .add("insecure", "no certificate is checked, so cacert has no effect: leave out one of them");
        }
        if let Err(mistake) = TlsConfig::new(&plan) {
            mistakes.add(mistake.field, mistake.message);
        }
        Some(plan)
    }

    fn refuse_options_of_tls(&self, mistakes: &mut Mistakes) {
        let of_tls = OPTIONS.iter().filter(|option| option.spec.heading == TLS);
        for option in of_tls.filter(|option| !(option.written)(self).is_empty()) {
            mistakes.add(
                option.spec.key,
                "it needs TLS, but the URL is http://: write https://, or leave it out",
            );
        }
    }
}
