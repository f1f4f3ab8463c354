//! A running link: an interface in each host, and a thread that moves packets between them.

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
const MAX_MEMORY_BYTES: usize = 1 << 30;

/// The name of the thread that moves packets.
pub(super) const MOVER_THREAD: &str = "link-mover";

/// A link that runs in this process. Dropping it removes it.
#[derive(Debug)]
pub struct Emulator {
    spec: LinkSpec,
    ends: [End; 2],
    // Before the interfaces: the thread ends first.
    forwarder: Forwarder,
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
        let pipes = [&spec.a_to_b, &spec.b_to_a].map(|shape| Pipe::new(shape.clone(), spec.round_trip_ns()));
        let devices = interfaces.each_ref().map(|interface| Arc::clone(&interface.tun));
        let forwarder = Forwarder::start(MOVER_THREAD, devices, pipes, MAX_MEMORY_BYTES)?;
        Ok(Self { spec, ends: [a, b], forwarder, interfaces })
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
        *self.spec.shape_mut(direction) = shape;
        // Both: a queue in multiples of the bandwidth-delay product follows the other's delay too.
        let shapes = Direction::BOTH.map(|direction| self.shape(direction).clone());
        self.forwarder.reshape(shapes, self.spec.round_trip_ns());
        Ok(())
    }

    /// Cuts the link in both directions; what is in it is lost. The interfaces stay up: it is a cable
    /// somewhere in between.
    pub fn down(&self) {
        self.forwarder.set_up(false);
    }

    /// Mends it.
    pub fn up(&self) {
        self.forwarder.set_up(true);
    }

    /// What was counted so far: from the first host to the second, and back.
    ///
    /// # Errors
    /// When a thread has ended.
    pub fn counters(&mut self) -> Result<[Counters; 2], LinkError> {
        let mut counted = self.forwarder.counters().ok_or(LinkError::Ended)?;
        for (counters, interface) in counted.iter_mut().zip(&mut self.interfaces) {
            counters.overrun_packets = interface.overruns();
        }
        Ok(counted)
    }

    /// One direction's shape.
    pub fn shape(&self, direction: Direction) -> &Shape {
        self.spec.shape(direction)
    }
}

fn check(shape: &Shape) -> Result<(), LinkError> {
    let mistakes = shape.mistakes();
    if mistakes.is_empty() { Ok(()) } else { Err(LinkError::Spec(mistakes)) }
}
