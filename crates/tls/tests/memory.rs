//! Measures the memory of an idle session.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicIsize, Ordering},
    },
};

use tls::{Authority, Failure, Offer, Session, Validity, Version};

/// Counts the allocated bytes.
struct Counting;

static ALLOCATED: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call is passed on as it came; counting changes nothing that the allocator promises.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn an_idle_session_takes_little_memory() {
    let authority = Authority::new("an authority").unwrap();
    let identity = authority.certify(&["localhost"], Validity::default()).unwrap();
    let server_config = Arc::new(Offer::default().server(identity, None).unwrap());
    for version in [Version::Tls12, Version::Tls13] {
        let offer = Offer { min: version, max: version, ..Offer::default() };
        let client = offer.client_builder().unwrap().with_root_certificates(authority.roots().unwrap());
        let client_config = Arc::new(client.with_no_client_auth());
        let (mut near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        far.set_nonblocking(true).unwrap();
        let mut buffer = vec![0; 65_536];
        // The first session also allocates state that the configurations share, such as tickets, so only the second one
        // is measured.
        for round in 0..2 {
            let before = ALLOCATED.load(Ordering::Relaxed);
            let mut client =
                Box::new(Session::client(client_config.clone(), "localhost".try_into().unwrap()).unwrap());
            let mut server = Box::new(Session::server(server_config.clone()).unwrap());
            while !client.handshake(&mut near).unwrap() | !server.handshake(&mut far).unwrap() {}
            // A request of 200 bytes and an answer of 60 kB.
            client.send(&mut near, &[7; 200]).unwrap();
            assert_eq!(server.receive(&mut far, &mut buffer), Ok(200));
            server.send(&mut far, &vec![7; 60_000]).unwrap();
            let mut received = 0;
            while received < 60_000 {
                received += client.receive(&mut near, &mut buffer).unwrap();
            }
            assert_eq!(client.receive(&mut near, &mut buffer), Err(Failure::WouldBlock));
            assert!(!client.has_unsent() && !server.has_unsent());
            let both = ALLOCATED.load(Ordering::Relaxed) - before;
            drop(server);
            let client_alone = ALLOCATED.load(Ordering::Relaxed) - before;
            let server_alone = both - client_alone;
            println!(
                "TLS {version}, round {round}: client {client_alone} bytes, server {server_alone} bytes"
            );
            assert!(round == 0 || client_alone.max(server_alone) < 9_000, "{client_alone}, {server_alone}");
        }
    }
}
