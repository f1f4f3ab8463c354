//! The statistics of IPVS, summed over the counters of each processor, because the kernel updates its own sums only every two seconds.

use lab::HostHandle;

use super::Values;

/// Names of IPVS's quantities, and their descriptions for users.
pub(super) const QUANTITIES: [(&str, &str); 2] =
    [("balancer_new_flows", "new flows"), ("balancer_forwarded_packets", "packets sent to servers")];

/// Reads the statistics.
pub(super) fn values(host: HostHandle<'_>) -> Result<Values, String> {
    let text = host.inside(|| kernel::counters::read_own("net/ip_vs_stats_percpu"));
    let text = text.map_err(|error| error.to_string())?;
    of(&text).ok_or_else(|| "the table of IPVS cannot be read".to_owned())
}

/// Parses two lines of headings, then a line in hexadecimal for each processor, up to the line of sums.
fn of(text: &str) -> Option<Values> {
    let mut sums = [0; QUANTITIES.len()];
    for line in text.lines().skip(2).take_while(|line| !line.trim_start().starts_with('~')) {
        let mut words = line.split_whitespace().skip(1);
        for sum in &mut sums {
            *sum += u64::from_str_radix(words.next()?, 16).ok()?;
        }
    }
    Some(QUANTITIES.iter().zip(sums).map(|((name, _), sum)| ((*name).to_owned(), sum as f64)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processors_are_summed() {
        let text = "       Total Incoming Outgoing         Incoming         Outgoing\n\
                    CPU    Conns  Packets  Packets            Bytes            Bytes\n  \
                    0       1A       20        0               FF                0\n  \
                    1        1       10        0               10                0\n  \
                    ~        0        0        0                0                0\n";
        let values = of(text).unwrap();
        assert_eq!((values["balancer_new_flows"], values["balancer_forwarded_packets"]), (27.0, 48.0));
        assert!(of("a\nb\n 0 x\n").is_none());
    }
}
