//! The table of curl's options.

use std::sync::LazyLock;

use super::super::table::{
    Row, Translation,
    Translation::{Becomes, Default, Ignored, Own, Refused},
};

pub(super) const SOCKS: &str = "only HTTP proxies are supported: give -x http://HOST:PORT, or leave it out";
/// Marks options that `curl.rs`, `url.rs`, `body.rs` or `route.rs` handles.
const READ: Translation = Own("");

/// All options of curl and their translations. A letter comes after `/`, and `=` marks an option with a value.
#[rustfmt::skip]
const OPTIONS: &[(&str, Translation)] = &[
    ("header/H= data/d= data-ascii= data-raw= data-binary= data-urlencode= json= form/F= form-string= get/G url-query= head/I upload-file/T= \
      user/u= oauth2-bearer= cookie/b= user-agent/A= referer/e= range/r= compressed url= globoff/g path-as-is location/L location-trusted \
      max-redirs= resolve= connect-to= connect-timeout= tlsv1.2 tlsv1.3 no-alpn proxy/x= proxytunnel/p ipv4/4 \
      ipv6/6", READ),
    ("request/X=", Becomes("method")),
    ("interface=", Becomes("source")),
    ("unix-socket=", Becomes("unix-socket")),
    ("max-time/m=", Becomes("timeout")),
    ("insecure/k", Becomes("insecure")),
    ("cacert=", Becomes("cacert")),
    ("cert/E=", Becomes("cert")),
    ("key=", Becomes("key")),
    ("ciphers=", Becomes("ciphers")),
    ("tls-max=", Becomes("tls-max")),
    ("no-sessionid", Becomes("no-resumption")),
    ("haproxy-protocol", Becomes("proxy-protocol")),
    ("form-escape basic tlsv1/1 tlsv1.0 tlsv1.1 http1.1 http0.9 silent/s show-error/S progress-bar/# no-buffer/N no-progress-meter \
      fail/f fail-with-body raw disable/q keepalive-time= disallow-username-in-url proxy-basic", Default),
    // These options do not change the request.
    ("post301 post302 post303", Ignored("a redirected POST becomes a GET, as browsers do")),
    ("output/o= remote-name/O remote-header-name/J dump-header/D= verbose/v include/i create-dirs create-file-mode= output-dir= \
      remote-name-all no-clobber remove-on-error remote-time/R xattr libcurl= stderr= trace= trace-ascii= trace-time styled-output \
      suppress-connect-headers etag-save= max-filesize= fail-early use-ascii/B", Ignored("answers are counted, not kept")),
    ("cookie-jar/c= junk-session-cookies/j", Ignored("cookies of answers are not kept")),
    ("write-out/w=", Ignored("proofload shows its own figures; --json FILE has all of them")),
    ("no-keepalive", Ignored("it concerns TCP keepalive probes; proofload's own --no-keepalive opens a connection per request")),
    ("retry= retry-delay= retry-max-time= retry-connrefused retry-all-errors", Ignored("every request counts; a failed one is not tried again")),
    ("parallel/Z parallel-immediate parallel-max=", Ignored("proofload's --users sets how many requests are in flight")),
    ("happy-eyeballs-timeout-ms= no-tcp-nodelay tcp-fastopen false-start", Ignored("proofload has no choice of how connections are made")),
    ("expect100-timeout=", Ignored("Expect: 100-continue is left out")),
    ("proto= proto-default= proto-redir=", Ignored("only http and https URLs are accepted")),
    ("noproxy=", Ignored("only -x sets a proxy here")),
    ("ssl ssl-allow-beast ssl-auto-client-cert ssl-no-revoke ssl-revoke-best-effort no-npn", Ignored("only TLS 1.2 and 1.3 are supported, without such settings")),
    // proofload does not support these options.
    ("http1.0/0 http2 http2-prior-knowledge http3 http3-only", Refused("only HTTP/1.1 is supported: leave it out, or write --http1.1")),
    ("digest ntlm ntlm-wb negotiate anyauth aws-sigv4= delegation= service-name= login-options= sasl-authzid= sasl-ir krb=",
     Refused("only Basic authentication is sent without a challenge: give the field Authorization with -H")),
    ("netrc/n netrc-file= netrc-optional", Refused("write the login with -u USER:PASSWORD")),
    ("socks4= socks4a= socks5= socks5-hostname= preproxy= socks5-basic socks5-gssapi socks5-gssapi-nec socks5-gssapi-service=", Refused(SOCKS)),
    ("proxy-user/U= proxy-anyauth proxy-digest proxy-negotiate proxy-ntlm proxy-service-name=",
     Refused("write the login into the proxy's URL: -x http://USER:PASSWORD@HOST:PORT")),
    ("proxy-cacert= proxy-capath= proxy-cert= proxy-cert-type= proxy-ciphers= proxy-crlfile= proxy-insecure proxy-key= proxy-key-type= \
      proxy-pass= proxy-pinnedpubkey= proxy-ssl-allow-beast proxy-ssl-auto-client-cert proxy-tls13-ciphers= proxy-tlsauthtype= \
      proxy-tlspassword= proxy-tlsuser= proxy-tlsv1", Refused("TLS to a proxy is not supported: leave it out")),
    ("proxy-header= proxy1.0=", Refused("the CONNECT request to a proxy is HTTP/1.1, and has no field except a login: give -x alone")),
    ("config/K=", Refused("write the file's options on the command line")),
    ("request-target=", Refused("write the path into the URL, and add --path-as-is")),
    ("limit-rate=", Refused("to slow the load down, leave it out and give --rate")),
    ("rate=", Refused("give the rate with proofload's --rate, before curl's command line")),
    ("time-cond/z=", Refused("write -H 'If-Modified-Since: …'")),
    ("etag-compare=", Refused("write -H 'If-None-Match: …'")),
    ("continue-at/C=", Refused("write -r OFFSET-")),
    ("next/: metalink", Refused("a trial repeats a single request: leave it out")),
    ("capath=", Refused("certificate authorities are read only from a file: give --cacert FILE")),
    ("pass=", Refused("encrypted keys are not read: decrypt the key first (openssl pkey)")),
    ("cert-type= key-type=", Refused("only PEM certificates and keys are read: convert the file, and leave this out")),
    ("tls13-ciphers=", Refused("give the ciphers with proofload's --ciphers, before curl's command line")),
    ("curves=", Refused("all supported key exchange groups are always offered: leave it out")),
    ("crlfile= cert-status pinnedpubkey= engine= random-file= egd-file= ssl-reqd", Refused("this check or source is not supported: leave it out, or give --cacert FILE")),
    ("sslv2/2 sslv3/3 tlsauthtype= tlspassword= tlsuser=", Refused("only TLS 1.2 and 1.3 with certificates are supported: leave it out")),
    ("dns-interface= dns-ipv4-addr= dns-ipv6-addr= dns-servers= doh-cert-status doh-insecure doh-url=",
     Refused("names are resolved by the system: give the target's address with --resolve HOST:PORT:ADDRESS")),
    ("local-port=", Refused("the kernel chooses the local port: leave it out; --interface sets the local address")),
    ("abstract-unix-socket=", Refused("abstract sockets are not supported: give --unix-socket PATH")),
    ("alt-svc= hsts=", Refused("proofload keeps no such cache: give the final URL")),
    ("tr-encoding", Refused("write -H 'TE: gzip' -H 'Connection: TE'")),
    ("crlf", Refused("line ends are not converted: convert them in the file (unix2dos)")),
    ("ignore-content-length", Refused("the length of an answer is always used to find its end: leave it out")),
    ("speed-limit/Y= speed-time/y=", Refused("leave it out; proofload's --answer-timeout limits the time of an answer")),
    ("help/h manual/M version/V", Refused("it sends no request: leave it out")),
    ("append/a compressed-ssh disable-eprt disable-epsv ftp-account= ftp-alternative-to-user= ftp-create-dirs ftp-method= ftp-pasv ftp-port/P= \
      ftp-pret ftp-skip-pasv-ip ftp-ssl-ccc ftp-ssl-ccc-mode= ftp-ssl-control hostpubmd5= hostpubsha256= list-only/l mail-auth= mail-from= \
      mail-rcpt= mail-rcpt-allowfails pubkey= quote/Q= telnet-option/t= tftp-blksize= tftp-no-options",
     Refused("it applies only to protocols other than HTTP: leave it out")),
];

/// Parses [`OPTIONS`] into one row per option.
pub(super) fn rows() -> impl Iterator<Item = &'static Row> {
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| {
        let row = |name: &'static str, translation| {
            let (name, value) = name.strip_suffix('=').map_or((name, ""), |name| (name, "VALUE"));
            let (long, letter) = name.split_once('/').unwrap_or((name, ""));
            Row { letter: letter.chars().next(), long, value, translation }
        };
        let rows = |(names, translation): &(&'static str, Translation)| {
            let translation = *translation;
            names.split(' ').map(move |name| row(name, translation))
        };
        OPTIONS.iter().flat_map(rows).collect()
    });
    ROWS.iter()
}
