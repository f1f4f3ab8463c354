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

/// Maximum memory of the packets of one direction, in bytes: 800 ms at 10 Gbit/s. It is allocated as needed.
const MAX_MEMORY_BYTES: usize = 1 << 30;

/// The name of the thread that moves packets.
pub(super) const MOVER_THREAD: &str = "link-mover";

/// A link that runs in this process. Dropping it removes the link.
#[derive(Debug)]
pub(crate) struct Emulator {
    spec: LinkSpec,
    ends: [End; 2],
    // This field precedes the interfaces, so that the thread ends before they disappear.
    forwarder: Forwarder,
    interfaces: [Interface; 2],
}

impl Emulator {
    /// Creates the interfaces and starts the thread that moves packets between them.
    ///
    /// # Errors
    /// If the specification is wrong or the kernel refuses an action. Nothing that was created remains.
    pub(crate) fn start(spec: LinkSpec, a: End, b: End) -> Result<Self, LinkError> {
        check(&spec.a_to_b)?;
        check(&spec.b_to_a)?;
        let interfaces = [Interface::create(&a)?, Interface::create(&b)?];
        let pipes = [&spec.a_to_b, &spec.b_to_a].map(|shape| Pipe::new(shape.clone(), spec.round_trip_ns()));
        let devices = interfaces.each_ref().map(|interface| Arc::clone(&interface.tun));
        let forwarder = Forwarder::start(MOVER_THREAD, devices, pipes, MAX_MEMORY_BYTES)?;
        Ok(Self { spec, ends: [a, b], forwarder, interfaces })
    }

    /// The current specification.
    pub(crate) fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// The ends of a direction: source, destination.
    pub(crate) fn ends(&self, direction: Direction) -> [&End; 2] {
        let [a, b] = &self.ends;
        if direction == Direction::AToB { [a, b] } else { [b, a] }
    }

    /// Changes one direction while the link runs.
    ///
    /// # Errors
    /// If the shape is wrong. The error names the mistakes, and nothing changes.
    pub(crate) fn set(&mut self, direction: Direction, shape: Shape) -> Result<(), LinkError> {
        check(&shape)?;
        *self.spec.shape_mut(direction) = shape;
        // Both directions are reshaped: the size of a queue in multiples of the bandwidth-delay product depends on both
        // delays.
        let shapes = Direction::BOTH.map(|direction| self.shape(direction).clone());
        self.forwarder.reshape(shapes, self.spec.round_trip_ns());
        Ok(())
    }

    /// Takes both directions down. Packets in the link are lost. The interfaces stay up, as if a cable between two
    /// routers were cut.
    pub(crate) fn down(&self) {
        self.forwarder.set_up(false);
    }

    /// Takes both directions up again.
    pub(crate) fn up(&self) {
        self.forwarder.set_up(true);
    }

    /// Restarts the search for the longest absence of the emulator.
    pub(crate) fn forget_longest_absence(&self) {
        self.forwarder.forget_longest_absence();
    }

    /// The counters since the start: from the first host to the second, and back.
    ///
    /// # Errors
    /// If the thread that moves packets has ended.
    pub(crate) fn counters(&mut self) -> Result<[Counters; 2], LinkError> {
        let mut counted = self.forwarder.counters().ok_or(LinkError::Ended)?;
        for (counters, interface) in counted.iter_mut().zip(&mut self.interfaces) {
            counters.overrun_packets = interface.overruns();
        }
        Ok(counted)
    }

    /// The shape of one direction.
    pub(crate) fn shape(&self, direction: Direction) -> &Shape {
        self.spec.shape(direction)
    }
}

fn check(shape: &Shape) -> Result<(), LinkError> {
    let mistakes = shape.mistakes();
    if mistakes.is_empty() { Ok(()) } else { Err(LinkError::Spec(mistakes)) }
}
