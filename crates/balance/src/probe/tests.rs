use etherparse::{NetSlice, SlicedPacket};
use proptest::prelude::*;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(1);

fn http() -> CheckKind {
    CheckKind::Http { tls: false, path: "/up".to_owned(), host: None, status: 200..=399 }
}

fn https() -> CheckKind {
    CheckKind::Http { tls: true, path: "/up".to_owned(), host: Some("web:443".to_owned()), status: 200..=399 }
}

/// An address of the balancer and a VIP.
fn ends(is_v6: bool) -> (SocketAddr, SocketAddr) {
    match is_v6 {
        false => ("192.0.2.1:61000".parse().unwrap(), "192.0.2.100:80".parse().unwrap()),
        true => ("[2001:db8::1]:61000".parse().unwrap(), "[2001:db8::100]:80".parse().unwrap()),
    }
}

/// A server under a probe. Its sequence numbers begin at 5,000.
struct Server {
    probe: Probe,
    began: Instant,
    sent: Vec<Vec<u8>>,
}

impl Server {
    fn of(kind: &CheckKind, is_v6: bool) -> Self {
        let (own, vip) = ends(is_v6);
        let began = Instant::now();
        let (probe, syn) = Probe::begin(own, vip, kind, TIMEOUT, u32::MAX, began).unwrap();
        Self { probe, began, sent: vec![syn] }
    }

    fn says(
        &mut self,
        at: u32,
        acknowledges: u32,
        set: impl FnOnce(&mut TcpHeader),
        text: &[u8],
    ) -> Option<Outcome> {
        let set = |tcp: &mut TcpHeader| {
            (tcp.ack, tcp.acknowledgment_number) = (true, acknowledges);
            set(tcp);
        };
        let packet = packet(self.probe.vip, self.probe.own, at, set, &[], text);
        self.probe.receive(&Segment::parse(&packet).unwrap(), &mut self.sent)
    }

    fn accepts(&mut self) -> Option<Outcome> {
        self.says(5_000, 0, |tcp| tcp.syn = true, &[])
    }

    /// Offset of the byte after the request.
    fn after_request(&self) -> u32 {
        self.probe.talk.as_ref().unwrap().request.len() as u32
    }

    fn answers(&mut self, at: u32, text: &str) -> Option<Outcome> {
        let asked = self.after_request();
        self.says(5_001 + at, asked, |_| (), text.as_bytes())
    }

    /// Kinds of the segments sent so far: S, R, A, or P if it has data.
    fn kinds(&self) -> String {
        let kind = |packet: &Vec<u8>| match Segment::parse(packet).unwrap() {
            segment if segment.is_syn => 'S',
            segment if segment.is_reset => 'R',
            segment if segment.payload.is_empty() => 'A',
            _ => 'P',
        };
        self.sent.iter().map(kind).collect()
    }
}

/// Compares the checksums of a packet with newly calculated ones.
fn checksums_are_right(packet: &[u8]) -> bool {
    let sliced = SlicedPacket::from_ip(packet).unwrap();
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { return false };
    match sliced.net.as_ref().unwrap() {
        NetSlice::Ipv4(ip) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            ip.header().header_checksum() == ip.header().to_header().calc_header_checksum()
                && tcp.calc_checksum_ipv4(from, to) == Ok(tcp.checksum())
        }
        NetSlice::Ipv6(ip) => {
            let (from, to) = (ip.header().source(), ip.header().destination());
            tcp.calc_checksum_ipv6(from, to) == Ok(tcp.checksum())
        }
        NetSlice::Arp(_) => false,
    }
}

#[test]
fn an_accepted_connection_is_reset() {
    for is_v6 in [false, true] {
        let mut server = Server::of(&CheckKind::Tcp, is_v6);
        assert_eq!(server.accepts(), Some(Ok(())));
        assert_eq!(server.kinds(), "SR");
        let reset = Segment::parse(&server.sent[1]).unwrap();
        assert_eq!((reset.sequence, reset.acknowledged), (0, Some(5_001)));
        assert!(server.sent.iter().all(|packet| checksums_are_right(packet)));
    }
}

#[test]
fn servers_that_refuse_are_told_from_silent_ones() {
    let mut server = Server::of(&CheckKind::Tcp, false);
    assert_eq!(server.says(0, 0, |tcp| tcp.rst = true, &[]), answered("refuses connections to port 80"));
    let mut server = Server::of(&CheckKind::Tcp, false);
    let half = server.began + TIMEOUT / 2;
    assert_eq!(server.probe.wakes(), half);
    assert_eq!(server.probe.wake(half, &mut server.sent), None);
    let end = server.began + TIMEOUT;
    assert_eq!(server.probe.wakes(), end);
    let why = "does not answer a SYN to port 80 within 1 s";
    assert_eq!(server.probe.wake(end, &mut server.sent), Some(Err(Fault::silent(why))));
    assert_eq!(server.kinds(), "SSR", "a lost SYN is sent again, and a lost answer is reset");

    let mut server = Server::of(&http(), false);
    server.accepts();
    let why = "does not answer a request to port 80 within 1 s";
    assert_eq!(server.probe.wake(end + TIMEOUT, &mut server.sent), answered(why), "its kernel lives");
}

fn answered(why: &str) -> Option<Outcome> {
    Some(Err(Fault::answered(why.to_owned())))
}

#[test]
fn a_connection_of_before_is_reset_first() {
    let mut server = Server::of(&CheckKind::Tcp, false);
    assert_eq!(server.says(9, 77, |_| (), &[]), None);
    let reset = Segment::parse(&server.sent[1]).unwrap();
    assert_eq!((reset.is_reset, reset.sequence, reset.acknowledged), (true, 77, None));
    assert_eq!(server.accepts(), Some(Ok(())));
}

#[test]
fn the_status_decides() {
    for (answer, outcome) in [
        ("HTTP/1.1 200 OK\r\n\r\n", Ok(())),
        ("HTTP/1.0 302\r\n", Ok(())),
        ("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 \r\n\r\nHTTP/1.1 200 OK\r\n", Ok(())),
        (
            "HTTP/1.1 503 Service Unavailable\r\n",
            Err("answers with status 503 on port 80; 200 to 399 are good"),
        ),
        ("HTTP/2.0 200 OK\r\n", Err("does not answer with HTTP on port 80")),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            Err("answers with status 101 on port 80; 200 to 399 are good"),
        ),
        ("HTTP/1.1 0200 OK\r\n", Err("does not answer with HTTP on port 80")),
        ("SSH-2.0", Err("does not answer with HTTP on port 80")),
    ] {
        let mut server = Server::of(&http(), false);
        assert_eq!(server.accepts(), None);
        assert_eq!(
            server.answers(0, answer),
            Some(outcome.map_err(|why| Fault::answered(why.to_owned()))),
            "{answer}"
        );
        assert_eq!(server.kinds(), "SPR");
    }
    let mut server = Server::of(&http(), false);
    server.accepts();
    assert_eq!(server.answers(0, "HTTP/1.1 2"), None);
    let asked = server.after_request();
    let closes = server.says(5_011, asked, |tcp| tcp.fin = true, &[]);
    assert_eq!(closes, answered(&format!("closes the connection to port 80 without a status{}", hint())));
    assert_eq!(server.kinds(), "SPAR");
}

fn hint() -> &'static str {
    "; if it speaks TLS, use check = { kind = \"https\" }"
}

#[test]
fn a_plain_request_to_a_port_of_tls_is_told_of() {
    let nginx =
        "HTTP/1.1 400 Bad Request\r\n\r\n<title>400 The plain HTTP request was sent to HTTPS port</title>";
    for (answer, is_tls) in [
        (nginx, true),
        ("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n", true),
        ("\u{15}\u{3}\u{1}\0\u{2}\u{2}F", true),
        ("HTTP/1.1 400 Bad Request\r\n\r\nno such host", false),
        ("HTTP/1.1 503 Wait\r\n\r\nHTTPS is down", false),
    ] {
        let mut server = Server::of(&http(), false);
        server.accepts();
        let Some(Err(fault)) = server.answers(0, answer) else { panic!("{answer}") };
        let says = fault.why.ends_with("; looks like TLS; use check = { kind = \"https\" }");
        assert_eq!(says, is_tls, "{}", fault.why);
    }
}

/// A TLS server that sends each segment when the previous one has been acknowledged. Returns the outcome of the probe.
fn over_tls(status: u16) -> Option<Outcome> {
    let identity = tls::Authority::new("test").unwrap().certify(&["a.example"], tls::Validity::default());
    let mut session =
        tls::Session::server(tls::Offer::default().server(identity.unwrap(), None).unwrap().into()).unwrap();
    let mut server = Server::of(&https(), true);
    assert_eq!(server.accepts(), None);
    let (mut wire, mut heard, mut said, mut text) = (talk::Wire::default(), 0_u32, 0_u32, Vec::new());
    for _ in 0..100 {
        let packets = std::mem::take(&mut server.sent);
        for packet in &packets {
            let segment = Segment::parse(packet).unwrap();
            wire.incoming.extend(segment.payload);
            heard += segment.payload.len() as u32;
            assert!(!segment.is_reset && segment.acknowledged == Some(5_001 + said) || segment.is_syn);
        }
        let mut buffer = [0; 4_096];
        if session.handshake(&mut wire).unwrap()
            && let Ok(read) = session.receive(&mut wire, &mut buffer)
        {
            text.extend(&buffer[..read]);
            let answer = format!("HTTP/1.1 {status} Words\r\n\r\n");
            session.send(&mut wire, answer.as_bytes()).unwrap();
        }
        let length = wire.outgoing.len().min(SEGMENT.into());
        let segment: Vec<u8> = wire.outgoing.drain(..length).collect();
        assert!(length > 0, "both wait");
        let found = server.says(5_001 + said, heard, |_| (), &segment);
        said += length as u32;
        if found.is_some() {
            assert!(String::from_utf8(text).unwrap().starts_with("GET /up HTTP/1.1\r\nHost: web:443\r\n"));
            assert!(server.kinds().ends_with('R'));
            return found;
        }
    }
    None
}

#[test]
fn a_server_is_asked_in_tls_whatever_certificate_it_has() {
    assert_eq!(over_tls(200), Some(Ok(())));
    assert_eq!(over_tls(503), answered("answers with status 503 on port 80; 200 to 399 are good"));
    let mut server = Server::of(&https(), false);
    server.accepts();
    let why = "does not speak TLS on port 80; if it speaks plain HTTP, use check = { kind = \"http\" }";
    assert_eq!(server.says(5_001, 0, |_| (), b"HTTP/1.1 400 Bad Request\r\n\r\n"), answered(why));
    let mut server = Server::of(&https(), false);
    server.accepts();
    let why = "does not answer a TLS handshake to port 80 within 1 s";
    let late = server.began + TIMEOUT;
    assert_eq!(server.probe.wake(late, &mut server.sent), answered(why));
}

#[test]
fn a_lost_request_is_sent_again() {
    let mut server = Server::of(&http(), false);
    server.accepts();
    server.accepts();
    let now = server.began + TIMEOUT / 2;
    server.probe.wake(now, &mut server.sent);
    assert_eq!(server.kinds(), "SPPP");
    assert_eq!(server.says(1, 0, |tcp| tcp.rst = true, &[]), None, "a reset out of place is nobody's");
    let why = format!("resets the connection to port 80 instead of answering{}", hint());
    assert_eq!(server.says(5_001, 0, |tcp| tcp.rst = true, &[]), answered(&why));
}

#[test]
fn an_answer_fits_into_what_is_read_and_is_read_if_not() {
    let mut server = Server::of(&http(), false);
    server.accepts();
    for packet in &server.sent {
        let Some(TransportSlice::Tcp(tcp)) = SlicedPacket::from_ip(packet).unwrap().transport else {
            panic!()
        };
        let most = crate::wire::SNAP_BYTES - HEADERS;
        assert!(usize::from(tcp.window_size()) <= most, "{} of {most}", tcp.window_size());
    }
    let answer = format!("HTTP/1.1 200 OK\r\n{}", "x".repeat(4_000));
    let set = |tcp: &mut TcpHeader| (tcp.ack, tcp.acknowledgment_number) = (true, server.after_request());
    let whole = packet(server.probe.vip, server.probe.own, 5_001, set, &[], answer.as_bytes());
    let cut = Segment::parse(&whole[..crate::wire::SNAP_BYTES]).unwrap();
    assert!(cut.payload.len() > 1_000);
    assert_eq!(server.probe.receive(&cut, &mut server.sent), Some(Ok(())));
}

/// Bytes of the IPv6 header and of a TCP header with 40 bytes of options.
const HEADERS: usize = 40 + 60;

#[test]
fn the_request_names_the_host() {
    let text = |host, is_v6| String::from_utf8(talk::request("/up", host, ends(is_v6).1)).unwrap();
    assert!(
        text(None, true).starts_with("GET /up HTTP/1.1\r\nHost: [2001:db8::100]\r\n"),
        "{}",
        text(None, true)
    );
    assert!(text(None, false).contains("\r\nHost: 192.0.2.100\r\n"));
    assert!(text(Some("a.example"), false).contains("\r\nHost: a.example\r\n"));
}

proptest! {
    #[test]
    fn bytes_of_any_kind_are_no_danger(bytes in proptest::collection::vec(any::<u8>(), 0..200), is_v6: bool) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = if is_v6 { 0x60 } else { 0x45 };
        }
        let mut server = Server::of(&http(), is_v6);
        if let Some(segment) = Segment::parse(&bytes) {
            server.probe.receive(&segment, &mut server.sent);
        }
    }

    /// Whatever segments a server sends, a probe answers each at most once, with valid packets, and ends once.
    #[test]
    fn segments_of_any_kind_are_no_danger(
        is_v6: bool,
        kind in 0_usize..3,
        segments in proptest::collection::vec(
            (any::<[bool; 4]>(), prop_oneof![0_u32..40, 4_990_u32..5_040, any::<u32>()],
             prop_oneof![Just(0_u32), 0_u32..200, any::<u32>()], "[ -~]{0,20}|HTTP/1.1 [2-5]00"),
            0..20,
        ),
    ) {
        let kind = [CheckKind::Tcp, http(), https()][kind].clone();
        let mut server = Server::of(&kind, is_v6);
        for ([syn, ack, fin, rst], at, acknowledges, text) in segments {
            let before = server.sent.len();
            let set = |tcp: &mut TcpHeader| (tcp.syn, tcp.ack, tcp.fin, tcp.rst) = (syn, ack, fin, rst);
            let found = server.says(at, acknowledges, set, text.as_bytes());
            prop_assert!(server.sent.len() <= before + 1);
            prop_assert!(server.sent[before..].iter().all(|packet| checksums_are_right(packet)));
            if found.is_some() {
                break;
            }
        }
    }

    /// An answer in pieces of any size has the same result as the whole answer, even if pieces are repeated, arrive too
    /// early or overlap.
    #[test]
    fn an_answer_in_pieces_is_put_together(
        interim in prop::option::of(102_u16..200),
        status in 200_u16..600,
        is_v6: bool,
        pieces in proptest::collection::vec((0_usize..60, 1_usize..30), 0..40),
    ) {
        let head = |status| format!("HTTP/1.1 {status} Words\r\nServer: a server\r\n\r\n");
        let answer = interim.map(head).unwrap_or_default() + &head(status);
        let mut server = Server::of(&http(), is_v6);
        prop_assert_eq!(server.accepts(), None);
        let all = pieces.into_iter().chain((0..answer.len()).map(|at| (at, 1)));
        let mut found = None;
        for (at, length) in all {
            let at = at.min(answer.len() - 1);
            let piece = &answer[at..(at + length).min(answer.len())];
            found = server.answers(at as u32, piece);
            if found.is_some() {
                break;
            }
        }
        prop_assert_eq!(found.unwrap().is_ok(), (200..=399).contains(&status));
        prop_assert!(server.kinds().ends_with('R') && server.kinds().matches('R').count() == 1);
    }
}
