//! The statistics of HAProxy, read from its socket (management guide of HAProxy, 9.1 and 9.3).

use std::{
    io::{self, Read, Write},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    thread,
    time::{Duration, Instant},
};

use lab::{Balancer, HostHandle, program::Haproxy};

use super::Values;

/// Maximum time to wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Length of an abstract socket's name, in bytes; HAProxy pads shorter names with zeros.
const NAME_BYTES: usize = 107;

/// Names of HAProxy's quantities, and their descriptions for users.
pub(super) const QUANTITIES: [(&str, &str); 8] = [
    ("balancer_most_connections", "most connections of clients at once"),
    ("balancer_most_queued", "most requests that waited for a server"),
    ("balancer_denied", "requests and answers denied"),
    ("balancer_request_errors", "malformed requests"),
    ("balancer_connect_errors", "failed connections to servers"),
    ("balancer_answer_errors", "failed answers of servers"),
    ("balancer_retries", "retried connections to servers"),
    ("balancer_redispatches", "requests sent to another server after a failure"),
];

/// Row and column of a figure in the table, and the index of the quantity that it adds to.
const COLUMNS: [(&str, &str, usize); 10] = [
    ("FRONTEND", "smax", 0),
    ("BACKEND", "qmax", 1),
    ("FRONTEND", "dreq", 2),
    ("FRONTEND", "dresp", 2),
    ("BACKEND", "dresp", 2),
    ("FRONTEND", "ereq", 3),
    ("BACKEND", "econ", 4),
    ("BACKEND", "eresp", 5),
    ("BACKEND", "wretr", 6),
    ("BACKEND", "wredis", 7),
];

/// Waits until all HAProxy processes answer.
pub(super) fn wait_until_there(host: HostHandle<'_>, balancer: &Balancer) -> Result<(), String> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match ask(host, balancer, "show info") {
            Ok(_) => return Ok(()),
            Err(why) if Instant::now() > deadline => return Err(why),
            Err(_) => thread::sleep(POLL_INTERVAL),
        }
    }
}

/// Resets all counters, including the maxima.
pub(super) fn clear(host: HostHandle<'_>, balancer: &Balancer) -> Result<(), String> {
    ask(host, balancer, "clear counters all").map(drop)
}

/// Reads the statistics of all processes and adds them up.
pub(super) fn values(host: HostHandle<'_>, balancer: &Balancer) -> Result<Values, String> {
    let tables = ask(host, balancer, "show stat")?;
    let mut sums = [0.0; QUANTITIES.len()];
    for table in &tables {
        add(table, &mut sums).ok_or("the table of HAProxy's statistics cannot be read")?;
    }
    Ok(QUANTITIES.iter().zip(sums).map(|((name, _), sum)| ((*name).to_owned(), sum)).collect())
}

/// Adds the figures of a CSV table: a line of names, then lines of values.
fn add(table: &str, sums: &mut [f64; QUANTITIES.len()]) -> Option<()> {
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next()?.strip_prefix("# ")?.split(',').collect();
    let rows: Vec<Vec<&str>> =
        lines.filter(|line| !line.is_empty()).map(|line| line.split(',').collect()).collect();
    let place = |name: &str| names.iter().position(|column| *column == name);
    let service = place("svname")?;
    for (row, column, quantity) in COLUMNS {
        let column = place(column)?;
        for row in rows.iter().filter(|cells| cells.get(service) == Some(&row)) {
            // A field is empty if its figure does not apply to the row.
            sums[quantity] += row.get(column).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
        }
    }
    Some(())
}

/// Sends a command to each process, and returns the answers.
fn ask(host: HostHandle<'_>, balancer: &Balancer, command: &str) -> Result<Vec<String>, String> {
    let answers = host.inside(|| balancer.processes.iter().map(|process| answer(process, command)).collect());
    answers.map_err(|error: io::Error| format!("cannot get the statistics of HAProxy: {error}"))
}

fn answer(process: &str, command: &str) -> io::Result<String> {
    let mut name = Haproxy::statistics_socket(process).into_bytes();
    name.resize(NAME_BYTES, 0);
    let mut socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.write_all(format!("{command}\n").as_bytes())?;
    let mut text = String::new();
    socket.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let table = "# pxname,svname,qmax,smax,dreq,dresp,ereq,econ,eresp,wretr,wredis,\n\
                     all,FRONTEND,,99,1,2,3,,,,,\nservers,web1,7,9,,4,,5,6,7,8,\nservers,BACKEND,11,50,,4,,5,6,7,8,\n\n";
        let mut sums = [0.0; QUANTITIES.len()];
        add(table, &mut sums).unwrap();
        assert_eq!(sums, [99.0, 11.0, 7.0, 3.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(add("Unknown command.\n", &mut sums), None);
    }
}
