//! What can go wrong between Rust and the library: panics and errors in callbacks, memory that must
//! live, threads, answers that are given up.

use std::{
    panic::{catch_unwind, AssertUnwindSafe},
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc, Arc,
    },
    thread,
    time::{Duration, SystemTime},
};

use cbt::{
    Access, Answer, Bytes, Chain, ChainOptions, Code, Cursor, Error, Event, Extent, Geometry, Map,
    MapBuilder, Request, Result, Room, Service, ServiceOptions, Snapshot, Source, StreamOptions,
    Tracker, TrackerOptions,
};

const SMALL: Geometry = Geometry {
    capacity: 65536,
    granularity: 4096,
};
const ALLOCATED: &str = "/csi.v1.SnapshotMetadata/GetMetadataAllocated";
const SNAP: &[u8] = b"\x0a\x04snap";

fn extent(offset: u64, length: u64) -> Extent {
    Extent { offset, length }
}

/// Every other block, and what a test wants at one of them.
struct Blocks<F> {
    at: u64,
    wrong: F,
    _held: Option<Held>,
}

/// Counts what lives.
struct Held(Arc<AtomicU64>);

impl Held {
    fn new(count: &Arc<AtomicU64>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<F: FnMut(u64) -> Result<u64> + Send> Source for Blocks<F> {
    fn seek(&mut self, offset: u64) -> Result<()> {
        self.at = offset;
        Ok(())
    }

    fn next(&mut self, room: &mut Room<'_>) -> Result<u64> {
        while self.at < SMALL.capacity && room.left() > 0 {
            let length = (self.wrong)(self.at)?;
            if self.at % 8192 == 0 {
                room.push(extent(self.at, length));
            }
            self.at += 4096;
        }
        Ok(self.at)
    }
}

fn blocks(wrong: impl FnMut(u64) -> Result<u64> + Send + 'static) -> Result<Cursor<'static>> {
    Cursor::from_source(
        Blocks {
            at: 0,
            wrong,
            _held: None,
        },
        SMALL,
    )
}

#[test]
fn a_source_answers() {
    let mut cursor = blocks(|_| Ok(4096)).unwrap();
    let expected: Vec<_> = (0..8).map(|number| extent(8192 * number, 4096)).collect();
    assert_eq!(cursor.extents().unwrap(), expected);
    cursor.set_batch(1).unwrap();
    cursor.seek(8192 * 3).unwrap();
    assert_eq!(cursor.extents().unwrap(), expected[3..]);
}

#[test]
fn an_error_of_a_source_is_the_cursors() {
    let mut cursor = blocks(|at| {
        if at < 32768 {
            Ok(4096)
        } else {
            Err(Error::new(Code::Unavailable, "höre \0 nichts"))
        }
    })
    .unwrap();
    let error = cursor.extents().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("höre"), "{error}");
    assert_eq!(cursor.next_batch().unwrap_err(), error);
}

#[test]
fn a_panic_of_a_source_is_internal_and_stays() {
    let mut cursor = blocks(|at| {
        if at == 32768 {
            panic!("out of {}", "luck")
        } else {
            Ok(4096)
        }
    })
    .unwrap();
    let error = cursor.extents().unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("out of luck"), "{error}");
    assert_eq!(
        cursor
            .seek(0)
            .and_then(|()| cursor.extents())
            .unwrap_err()
            .code(),
        Code::Internal
    );
}

#[test]
fn a_source_that_lies_is_internal() {
    for length in [0, 1 << 20, u64::MAX, 8192 + 4096] {
        let error = blocks(move |_| Ok(length)).unwrap().extents().unwrap_err();
        assert_eq!(error.code(), Code::Internal, "{error}");
    }
    struct More;
    impl Source for More {
        fn seek(&mut self, _: u64) -> Result<()> {
            Ok(())
        }
        fn next(&mut self, room: &mut Room<'_>) -> Result<u64> {
            for _ in 0..=room.left() {
                room.push(extent(0, 1));
            }
            Ok(SMALL.capacity)
        }
    }
    let error = Cursor::from_source(More, SMALL)
        .unwrap()
        .extents()
        .unwrap_err();
    assert!(error.message().contains("room"), "{error}");
}

#[test]
fn what_is_kept_is_dropped_once() {
    let count = Arc::new(AtomicU64::new(0));
    let source = |geometry| {
        Cursor::from_source(
            Blocks {
                at: 0,
                wrong: |_| Ok(4096),
                _held: Some(Held::new(&count)),
            },
            geometry,
        )
    };
    let cursor = source(SMALL).unwrap();
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let cursor = cursor.coalesce(1 << 20).unwrap();
    drop(cursor);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    // After failures, too: of the cursor, of a transform that consumes it, of a service.
    source(Geometry {
        capacity: 1,
        granularity: 0,
    })
    .unwrap_err();
    source(SMALL).unwrap().split(1).unwrap_err();
    let held = Held::new(&count);
    let provider = move |_: &Request<'_>| -> Result<Answer> {
        Err(Error::new(
            Code::NotFound,
            format!("{}", held.0.load(Ordering::Relaxed)),
        ))
    };
    let options = ServiceOptions {
        message_bytes: 1,
        ..Default::default()
    };
    Service::new(provider, &options).unwrap_err();
    assert_eq!(count.load(Ordering::Relaxed), 0);
    let held = Held::new(&count);
    let service = Service::new(
        move |_: &Request<'_>| -> Result<Answer> {
            let _ = &held;
            Err(Error::new(Code::NotFound, ""))
        },
        &Default::default(),
    )
    .unwrap();
    let stream = service.open(ALLOCATED, SNAP, &Default::default()).unwrap();
    drop(service);
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(stream);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    // What panics as it is dropped in a callback ends nothing.
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("dropped")
        }
    }
    let bad = Bad;
    drop(
        blocks(move |_| {
            let _ = &bad;
            Ok(4096)
        })
        .unwrap(),
    );
}

#[test]
fn bytes_outlive_their_handles() {
    let cursor = {
        let bits: Arc<[u8]> = Arc::from(&[0x0f, 0x80][..]);
        let bytes = Bytes::shared(bits.clone()).unwrap();
        let cursor = Cursor::from_bitmap(&bytes, Default::default(), SMALL).unwrap();
        assert_eq!(Arc::strong_count(&bits), 2);
        cursor
    };
    let mut cursor = cursor;
    assert_eq!(
        cursor.extents().unwrap(),
        [extent(0, 16384), extent(61440, 4096)]
    );
    assert!(Bytes::copy(&[]).unwrap().as_slice().is_empty());
    assert!(Bytes::owned(Vec::new()).unwrap().as_slice().is_empty());
    assert!(Bytes::borrowed(&[]).unwrap().as_slice().is_empty());
    let few =
        Cursor::from_bitmap(&Bytes::copy(&[0]).unwrap(), Default::default(), SMALL).unwrap_err();
    assert_eq!(few.code(), Code::InvalidArgument);
}

#[test]
fn an_answer_that_is_given_up_is_noticed() {
    let mut cursor = Cursor::from_extents(&[extent(0, 4096), extent(8192, 4096)], SMALL).unwrap();
    cursor.set_batch(1).unwrap();
    let given_up = catch_unwind(AssertUnwindSafe(|| {
        cursor.batches().next().unwrap().unwrap();
    }));
    assert_eq!(given_up.is_err(), cfg!(debug_assertions));
    cursor.seek(0).unwrap();
    let mut batches = cursor.batches();
    batches.next().unwrap().unwrap();
    batches.abandon();
    // An error and the end are ends.
    cursor.seek(0).unwrap();
    assert_eq!(
        cursor
            .batches()
            .map(|batch| batch.unwrap().offsets.len())
            .sum::<usize>(),
        2
    );
    let mut broken = blocks(|_| Err(Error::new(Code::DataLoss, "gone"))).unwrap();
    let found: Vec<_> = broken.batches().collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].as_ref().unwrap_err().code(), Code::DataLoss);
    let mut cursor = Cursor::from_extents(&[extent(0, 4096)], SMALL).unwrap();
    let stopped = cursor.for_each(|_| Err(Error::new(Code::Aborted, "enough")));
    assert_eq!(stopped.unwrap_err().code(), Code::Aborted);
}

#[test]
fn a_provider_may_fail_and_panic() {
    let serve = |provider: fn(&Request<'_>) -> Result<Answer>| {
        let service = Service::new(provider, &Default::default()).unwrap();
        let mut stream = service.open(ALLOCATED, SNAP, &Default::default()).unwrap();
        let error = stream.next().unwrap_err();
        // For good.
        assert_eq!(stream.next().unwrap_err().code(), error.code());
        stream.trailing_metadata().unwrap_err();
        error
    };
    let error = serve(|_| Err(Error::new(Code::NotFound, "no such snapshot")));
    assert_eq!(
        (error.code(), error.message()),
        (Code::NotFound, "no such snapshot")
    );
    assert_eq!(serve(|_| panic!("out of luck")).code(), Code::Internal);
    assert_eq!(
        serve(|_| Ok(Answer::new(blocks(|_| panic!("late"))?))).code(),
        Code::Internal
    );
    assert_eq!(
        serve(|_| Ok(Answer::new(blocks(|_| Ok(4096))?).blocks(u64::MAX))).code(),
        Code::InvalidArgument
    );
    let service = Service::new(
        |_: &Request<'_>| -> Result<Answer> { unreachable!() },
        &Default::default(),
    )
    .unwrap();
    for (method, request, code) in [
        ("/csi.v1.Other/Method", SNAP, Code::Unimplemented),
        (ALLOCATED, &b"\xff"[..], Code::InvalidArgument),
        (ALLOCATED, &b""[..], Code::InvalidArgument),
        ("nul\0", SNAP, Code::InvalidArgument),
    ] {
        assert_eq!(
            service
                .open(method, request, &Default::default())
                .unwrap_err()
                .code(),
            code
        );
    }
}

#[test]
fn requests_show_what_was_asked() {
    let (send, asked) = mpsc::channel();
    let send = std::sync::Mutex::new(send);
    let provider = move |request: &Request<'_>| {
        let secret = request.secret("key").map(<[u8]>::to_vec);
        assert!(!format!("{request:?}").contains("s3cret"));
        send.lock()
            .unwrap()
            .send((
                request.base().map(str::to_owned),
                request.target().to_owned(),
                secret,
                request.secret("other").is_none(),
                request.cancelled(),
            ))
            .unwrap();
        Ok(Answer::new(Cursor::from_extents(&[], SMALL)?).version("1"))
    };
    let service = Service::new(provider, &Default::default()).unwrap();
    let request = b"\x0a\x01b\x12\x01t\x2a\x0d\x0a\x03key\x12\x06s3cret";
    let method = "/csi.v1.SnapshotMetadata/GetMetadataDelta";
    let mut stream = service.open(method, request, &Default::default()).unwrap();
    assert!(matches!(stream.next().unwrap(), Event::Message(_)));
    assert!(!stream.initial_metadata().unwrap().is_empty());
    assert!(matches!(stream.next().unwrap(), Event::End));
    let (base, target, secret, other, cancelled) = asked.recv().unwrap();
    assert_eq!(secret.as_deref(), Some(&b"s3cret"[..]));
    assert_eq!(
        (base.as_deref(), target.as_str(), other, cancelled),
        (Some("b"), "t", true, false)
    );
    assert_eq!(service.methods().count(), 2);
}

#[test]
fn streams_move_between_threads_and_are_cancelled_from_any() {
    let service = Arc::new(
        Service::new(
            |_: &Request<'_>| {
                Ok(Answer::new(blocks(|_| {
                    thread::sleep(Duration::from_millis(1));
                    Ok(4096)
                })?))
            },
            &Default::default(),
        )
        .unwrap(),
    );
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let service = service.clone();
            thread::spawn(move || {
                let options = StreamOptions {
                    slice: Some(Duration::from_micros(1)),
                    ..Default::default()
                };
                let mut stream = service.open(ALLOCATED, SNAP, &options).unwrap();
                let mut tuples = match stream.next().unwrap() {
                    Event::Message(message) => message.tuples,
                    _ => 0,
                };
                // On in another thread.
                thread::spawn(move || loop {
                    match stream.next().unwrap() {
                        Event::Message(message) => tuples += message.tuples,
                        Event::Yield => {}
                        Event::End => return tuples,
                    }
                })
                .join()
                .unwrap()
            })
        })
        .collect();
    for each in threads {
        assert_eq!(each.join().unwrap(), 8);
    }
    let endless = Service::new(
        |_: &Request<'_>| {
            struct Endless;
            impl Source for Endless {
                fn seek(&mut self, _: u64) -> Result<()> {
                    Ok(())
                }
                fn next(&mut self, _: &mut Room<'_>) -> Result<u64> {
                    thread::sleep(Duration::from_millis(1));
                    Ok(0)
                }
            }
            Ok(Answer::new(Cursor::from_source(Endless, SMALL)?))
        },
        &Default::default(),
    )
    .unwrap();
    let mut stream = endless.open(ALLOCATED, SNAP, &Default::default()).unwrap();
    let canceller = stream.canceller();
    let (begun, begin) = mpsc::channel();
    let other = canceller.clone();
    let cancels = thread::spawn(move || {
        begin.recv().unwrap();
        thread::sleep(Duration::from_millis(20));
        other.cancel();
    });
    begun.send(()).unwrap();
    let error = loop {
        match stream.next() {
            Ok(Event::End) => panic!("an end"),
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::Cancelled);
    cancels.join().unwrap();
    drop(stream);
    canceller.cancel();
}

#[test]
fn a_deadline_in_the_past_is_not_never() {
    let service = Service::new(
        |_: &Request<'_>| Ok(Answer::new(blocks(|_| Ok(4096))?)),
        &Default::default(),
    )
    .unwrap();
    for deadline in [
        SystemTime::UNIX_EPOCH,
        SystemTime::UNIX_EPOCH - Duration::from_secs(1),
    ] {
        let options = StreamOptions {
            deadline: Some(deadline),
            ..Default::default()
        };
        // The caller ends the call; the stream passes the deadline on to its provider.
        let mut stream = service.open(ALLOCATED, SNAP, &options).unwrap();
        assert!(matches!(stream.next().unwrap(), Event::Message(_)));
    }
}

#[test]
fn maps_chains_and_trackers_work_together() {
    let folder = std::env::temp_dir().join(format!("cbt-rust-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).unwrap();
    let tracker = Arc::new(
        Tracker::create(&TrackerOptions {
            geometry: SMALL,
            volume: "vol".into(),
            base: "mon".into(),
            ..Default::default()
        })
        .unwrap(),
    );
    thread::scope(|scope| {
        for number in 0..8 {
            let tracker = &tracker;
            scope.spawn(move || drop(tracker.begin(8192 * number, 4096).unwrap()));
        }
    });
    assert_eq!(
        tracker.begin(SMALL.capacity, 1).unwrap_err().code(),
        Code::OutOfRange
    );
    tracker.mark(&[extent(4096, 1)]).unwrap();
    tracker.open_epoch("tue").unwrap();
    let map = tracker.close_epoch().unwrap();
    assert_eq!(
        (map.volume(), map.base(), map.target()),
        ("vol", "mon", "tue")
    );
    assert_eq!(map.info().unwrap().blocks, 9);
    tracker.acknowledge(&map).unwrap();
    assert_eq!(tracker.epochs().unwrap()[0].base, "tue");

    map.save(folder.join("map.cbm")).unwrap();
    let loaded = Map::load(folder.join("map.cbm")).unwrap();
    assert_eq!(loaded, map);
    // SAFETY: nothing changes the file.
    let mapped = unsafe { Map::load_mapped(folder.join("map.cbm")) }.unwrap();
    assert_eq!(mapped, map);
    assert_eq!(
        Map::load(folder.join("none.cbm")).unwrap_err().code(),
        Code::NotFound
    );
    let mut damaged = map.encode().unwrap().as_slice().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    assert_eq!(Map::decode(&damaged).unwrap_err().code(), Code::DataLoss);

    let mut chain = Chain::create(
        folder.join("vol.chain"),
        "vol",
        "mon",
        SMALL,
        &ChainOptions {
            no_sync: true,
            ..Default::default()
        },
    )
    .unwrap();
    chain.append_at(&map, Some(-7)).unwrap();
    let taken = |chain: &Chain, index| chain.snapshot(index).unwrap().time;
    assert_eq!((taken(&chain, 0), taken(&chain, 1)), (None, Some(-7)));
    assert_eq!(
        (chain.count(), chain.snapshot(1).unwrap()),
        (
            2,
            Snapshot {
                id: "tue".to_owned(),
                capacity: SMALL.capacity,
                time: Some(-7)
            }
        )
    );
    drop(chain);
    let chain = Chain::open(folder.join("vol.chain"), Access::Read, &Default::default()).unwrap();
    chain.verify().unwrap();
    let mut delta = chain.delta("mon", "tue").unwrap();
    drop(chain);
    assert_eq!(Map::from_cursor(&mut delta, 0).unwrap(), map);

    let mut builder = MapBuilder::new(SMALL).unwrap();
    builder.add(&[extent(0, 1)]).unwrap();
    let one = builder.build().unwrap();
    assert!(one.contains(0) && !one.contains(1));
    assert_eq!(Map::union([&one, &map]).unwrap(), map);
    assert_eq!(map.intersection(&one).unwrap(), one);
    assert_eq!(map.difference(&one).unwrap().info().unwrap().blocks, 8);
    assert_eq!(
        map.symmetric_difference(&one).unwrap(),
        map.difference(&one).unwrap()
    );
    let portable = map.to_portable(64).unwrap();
    assert_eq!(Map::from_portable(&portable, 64, SMALL).unwrap(), map);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn arrow_streams_are_released() {
    let cursor = blocks(|_| Ok(4096)).unwrap();
    let mut stream = cursor.into_arrow(0).unwrap();
    // SAFETY: a stream that is not released.
    assert!(unsafe { (*stream.as_mut_ptr()).get_next.is_some() });
}

#[test]
fn what_is_send_is_so() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Cursor<'_>>();
    send::<cbt::Stream>();
    send::<cbt::Checker>();
    send::<MapBuilder>();
    send::<cbt::Canceller>();
    sync::<cbt::Canceller>();
    send::<Map>();
    sync::<Map>();
    send::<Chain>();
    sync::<Chain>();

    send::<Tracker>();
    sync::<Tracker>();
    send::<Service>();
    sync::<Service>();

    send::<Bytes<'_>>();
    sync::<Bytes<'_>>();
    assert_eq!(cbt::abi_version().0, 1);
    assert!(!cbt::version().is_empty() && !cbt::simd_level().is_empty());
}
