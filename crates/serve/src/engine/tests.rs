use std::{
    io::Write as _,
    net::{Shutdown, TcpListener, TcpStream},
};

use rustix::event::{PollFd, PollFlags, poll};
use sockets::{ConnectionLimit, Token};
use testing::until;

use super::*;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: target\r\n\r\n";
const TIMEOUT_NS: u64 = 1_000;

/// Calls `test` with an engine, a connection of that engine, and the client's socket.
fn serve(config: &Config, test: impl FnOnce(&mut Engine<'_>, &mut Connection<'_>, TcpStream)) {
    let (answers, limit) = (Answers::new(config), ConnectionLimit::new(None));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (socket, _) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();
    let shared = Shared {
        config,
        answers: &answers,
        queue: None,
        security: None,
        pages: None,
        recorder: None,
        clock: Clock::start(),
    };
    let mut engine = Engine::new(shared, 0);
    let permit = limit.try_acquire().unwrap();
    let mut connection = Connection::new(socket.into(), Token::from_number(1), permit, 0);
    engine.opened(&mut connection);
    test(&mut engine, &mut connection, client);
}

/// Waits until the kernel reports one of the events in `flags` for the connection's socket.
fn wait_for(connection: &Connection<'_>, flags: PollFlags) {
    until("the kernel tells", || {
        let mut asked = [PollFd::new(&connection.socket, flags)];
        poll(&mut asked, Some(&rustix::time::Timespec::default())).unwrap();
        asked[0].revents().intersects(flags)
    });
}

/// Handles the connection's next timer. Returns the timer's time and the next step.
fn at_next_timer(engine: &mut Engine<'_>, connection: &mut Connection<'_>) -> (u64, NextStep) {
    engine.now_ns = engine.timers.next_due_ns().unwrap();
    let (_, timer) = engine.timers.pop_due(engine.now_ns).unwrap();
    (engine.now_ns, engine.timer_due(connection, timer))
}

#[test]
fn a_connection_is_idle_from_its_last_byte_or_answer() {
    let config = Config { keepalive_timeout_ns: Some(TIMEOUT_NS), ..Config::default() };
    for sent in [GET, &GET[..10]] {
        serve(&config, |engine, connection, mut client| {
            for last_ns in [400, 1_300] {
                client.write_all(sent).unwrap();
                wait_for(connection, PollFlags::IN);
                engine.now_ns = last_ns;
                assert_eq!(engine.event(connection, EventFlags::IN), NextStep::Wait);
                assert_eq!(at_next_timer(engine, connection).1, NextStep::Wait);
            }
            assert_eq!(at_next_timer(engine, connection), (1_300 + TIMEOUT_NS, NextStep::Close));
            assert_eq!(engine.report.connections_idled_out, 1);
        });
    }
    serve(&config, |engine, connection, _client| {
        assert_eq!(at_next_timer(engine, connection), (TIMEOUT_NS, NextStep::Close));
    });
}

#[test]
fn a_connection_that_waits_for_its_answer_is_not_idle() {
    let delay = "1h".parse().unwrap();
    let config = Config { keepalive_timeout_ns: Some(TIMEOUT_NS), delay, ..Config::default() };
    serve(&config, |engine, connection, mut client| {
        client.write_all(GET).unwrap();
        wait_for(connection, PollFlags::IN);
        engine.event(connection, EventFlags::IN);
        for times in 1..5 {
            assert_eq!(at_next_timer(engine, connection), (times * TIMEOUT_NS, NextStep::Wait));
        }
    });
}

#[test]
fn a_client_has_gone_if_it_closed_and_its_reset_has_come() {
    for has_gone in [false, true] {
        let delay = "1h".parse().unwrap();
        serve(&Config { delay, ..Config::default() }, |engine, connection, mut client| {
            client.write_all(GET).unwrap();
            wait_for(connection, PollFlags::IN);
            engine.event(connection, EventFlags::IN);
            client.shutdown(Shutdown::Write).unwrap();
            let client = (!has_gone).then_some(client);
            wait_for(connection, PollFlags::RDHUP);
            assert_eq!(engine.event(connection, EventFlags::IN | EventFlags::RDHUP), NextStep::Wait);
            // If the client has closed its socket, its kernel resets the connection when the answer's first byte
            // arrives.
            connection.phase = Phase::Writing;
            rustix::net::send(&connection.socket, b"H", rustix::net::SendFlags::NOSIGNAL).unwrap();
            if has_gone {
                wait_for(connection, PollFlags::HUP);
            }
            engine.sent_whole(connection);
            let counted = (engine.report.answers, engine.report.clients_gone);
            assert_eq!(counted, if has_gone { (0, 1) } else { (1, 0) });
            drop(client);
        });
    }
}
