//! The network of a host that is this machine itself: its settings, the addresses of its loopback interface, and its
//! routes. Everything is recorded in a journal before it is changed.

use std::net::IpAddr;

use kernel::{
    netlink::{LOOPBACK, Netlink},
    tune,
};
use settings::Network;
use undo::{AddedRoute, Change, InterfaceAddress, Journal};

use crate::plan::Host;

/// Sets up what a host needs besides processes.
///
/// # Errors
/// If a setting could not be put back exactly, or the kernel refuses. What was changed until then is in the journal.
pub(crate) fn set_up(host: &Host, journal: &Journal) -> Result<(), String> {
    let settings: Vec<(String, String)> =
        host.sysctls.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let refused: Vec<String> = settings.iter().filter_map(|(name, _)| tune::refusal(name)).collect();
    if !refused.is_empty() {
        return Err(refused.join("; "));
    }
    let applied = tune::apply_in(journal, &settings)?;
    if let Some(other) = applied.iter().find(|applied| !applied.is_as_asked()) {
        return Err(format!(
            "{} = {}: the kernel changed the value to {}",
            other.name, other.asked, other.after
        ));
    }
    let network = undo::Network::own().map_err(|error| error.to_string())?;
    let mut netlink = Netlink::open().map_err(|error| error.to_string())?;
    let present = netlink.addresses().map_err(|error| error.to_string())?;
    let is_present = |wanted: &IpAddr| present.iter().any(|assigned| assigned.address == *wanted);
    for &address in host.loopback.iter().filter(|address| !is_present(address)) {
        let given = InterfaceAddress { interface: "lo".to_owned(), index: LOOPBACK, address, network };
        let failed = |why: String| format!("cannot give {address} to lo: {why}");
        journal.record(Change::Address(given)).map_err(|error| failed(error.to_string()))?;
        let added = netlink.add_address(LOOPBACK, address, Network::max_prefix(address));
        added.map_err(|error| failed(error.to_string()))?;
    }
    for route in &host.routes {
        let failed = |why: String| format!("cannot add the route to {route}: {why}");
        let (to, prefix, via) = (route.to, route.prefix, route.via.clone());
        let change = Change::Route(AddedRoute { to, prefix, via, network });
        journal.record(change).map_err(|error| failed(error.to_string()))?;
        let added = netlink.add_route(route.to, route.prefix, &route.via);
        added.map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}
