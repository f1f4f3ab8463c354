//! A running link: an interface in each host and a thread for each direction.

use std::sync::Arc;

use super::{
    LinkError,
    counters::Counters,
    forward::Forwarder,
    namespace::{End, Interface},
    pipe::Pipe,
    spec::{Direction, LinkSpec, Shape},
};

/// Memory that the packets of one direction may take, in bytes; taken as it is needed. 10 Gbit/s for
/// 800 ms.
const MOST_BYTES: usize = 1 << 30;

/// The names of the threads that move packets, by direction.
pub(super) const MOVERS: [&str; 2] = ["link-a-to-b", "link-b-to-a"];

/// A link that runs in this process. Dropping it removes it.
#[derive(Debug)]
pub struct Emulator {
    spec: LinkSpec,
    ends: [End; 2],
    // Before the interfaces: the threads end first.
    forwarders: [Forwarder; 2],
    interfaces: [Interface; 2],
}

impl Emulator {
    /// Makes the interfaces and joins them.
    ///
    /// # Errors
    /// Names what is wrong with the specification, or what the kernel refused; nothing is left then.
    pub fn start(spec: LinkSpec, a: End, b: End) -> Result<Self, LinkError> {
        check(&spec.a_to_b)?;
        check(&spec.b_to_a)?;
        let interfaces = [Interface::create(&a)?, Interface::create(&b)?];
        let start = |direction: Direction| {
            let index = direction.index();
            let shape = if index == 0 { &spec.a_to_b } else { &spec.b_to_a };
            let pipe = Pipe::new(shape.clone(), spec.round_trip_ns());
            let (from, to) = (&interfaces[index].tun, &interfaces[1 - index].tun);
            Forwarder::start(MOVERS[index], Arc::clone(from), Arc::clone(to), pipe, MOST_BYTES)
        };
        let forwarders = [start(Direction::AToB)?, start(Direction::BToA)?];
        Ok(Self { spec, ends: [a, b], forwarders, interfaces })
    }

    /// What it is now.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Its ends: from, to.
    pub fn ends(&self, direction: Direction) -> [&End; 2] {
        let [a, b] = &self.ends;
        if direction == Direction::AToB { [a, b] } else { [b, a] }
    }

    /// Changes one direction while it runs.
    ///
    /// # Errors
    /// What is wrong with the shape; nothing is changed then.
    pub fn set(&mut self, direction: Direction, shape: Shape) -> Result<(), LinkError> {
        check(&shape)?;
        match direction {
            Direction::AToB => self.spec.a_to_b = shape,
            Direction::BToA => self.spec.b_to_a = shape,
        }
        // Both: a queue in multiples of the bandwidth-delay product follows the other's delay too.
        for direction in Direction::BOTH {
            let shape = self.shape(direction).clone();
            self.forwarders[direction.index()].reshape(shape, self.spec.round_trip_ns());
        }
        Ok(())
    }

    /// Cuts the link in both directions; what is in it is lost. The interfaces stay up: it is a cable
    /// somewhere in between.
    pub fn down(&self) {
        self.forwarders.iter().for_each(|forwarder| forwarder.set_up(false));
    }

    /// Mends it.
    pub fn up(&self) {
        self.forwarders.iter().for_each(|forwarder| forwarder.set_up(true));
    }

    /// What was counted so far: from the first host to the second, and back.
    ///
    /// # Errors
    /// When a thread has ended.
    pub fn counters(&mut self) -> Result<[Counters; 2], LinkError> {
        let mut counted = <[Counters; 2]>::default();
        for direction in Direction::BOTH {
            let index = direction.index();
            let counters = self.forwarders[index].counters().ok_or(LinkError::Ended)?;
            counted[index] = Counters { overrun_packets: self.interfaces[index].overruns(), ..counters };
        }
        Ok(counted)
    }

    /// One direction's shape.
    pub fn shape(&self, direction: Direction) -> &Shape {
        match direction {
            Direction::AToB => &self.spec.a_to_b,
            Direction::BToA => &self.spec.b_to_a,
        }
    }
}

fn check(shape: &Shape) -> Result<(), LinkError> {
    let mistakes = shape.mistakes();
    if mistakes.is_empty() { Ok(()) } else { Err(LinkError::Spec(mistakes)) }
}
