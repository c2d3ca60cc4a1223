use std::{marker::PhantomData, mem, path::PathBuf, ptr, ptr::NonNull};

use cbt_sys as sys;

use crate::{
    bytes::Bytes,
    cursor::{Extent, Geometry},
    error::{check, Result},
    map::{path_text, text, Map},
};

/// Options of trackers.
#[derive(Clone, Debug, Default)]
pub struct TrackerOptions {
    /// The volume's.
    pub geometry: Geometry,
    /// The volume's name.
    pub volume: String,
    /// The snapshot at which the first epoch begins.
    pub base: String,
    /// The tracker's own directory; none: in memory only.
    pub directory: Option<PathBuf>,
    /// The unit (bytes) in which the log records what may be dirty; 0: 64 MiB.
    pub region_bytes: u64,
}

/// Counts writes as they happen. Any number of threads may use one.
#[derive(Debug)]
pub struct Tracker {
    raw: NonNull<sys::cbt_tracker>,
}

// SAFETY: any number of threads may use one tracker.
unsafe impl Send for Tracker {}
// SAFETY: as above.
unsafe impl Sync for Tracker {}

/// A write in flight, which ends when it is dropped. Drop it when its data is in the storage.
///
/// ```compile_fail,E0505
/// # use cbt::{Geometry, Tracker, TrackerOptions};
/// let tracker = Tracker::create(&TrackerOptions::default()).unwrap();
/// let write = tracker.begin(0, 4096).unwrap();
/// drop(tracker); // the write is in flight
/// drop(write);
/// ```
#[derive(Debug)]
#[must_use = "a write that is dropped has ended"]
pub struct Write<'t> {
    raw: sys::cbt_write,
    tracker: PhantomData<&'t Tracker>,
}

impl Drop for Write<'_> {
    fn drop(&mut self) {
        // SAFETY: of a tracker that lives, and not ended yet.
        unsafe { sys::cbt_write_end(&mut self.raw) }
    }
}

/// What is known of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Epoch {
    /// The snapshot at which it began.
    pub base: String,
    /// Ended, and not acknowledged.
    pub closed: bool,
    /// False: a crash made it report more than was written.
    pub exact: bool,
}

impl Tracker {
    fn make(
        options: &TrackerOptions,
        call: unsafe extern "C" fn(
            *const sys::cbt_tracker_options,
            *mut *mut sys::cbt_tracker,
            *mut *mut sys::cbt_error,
        ) -> sys::cbt_code,
    ) -> Result<Self> {
        let (volume, base) = (text(&options.volume)?, text(&options.base)?);
        let directory = options.directory.as_deref().map(path_text).transpose()?;
        let raw_options = sys::cbt_tracker_options {
            struct_size: mem::size_of::<sys::cbt_tracker_options>() as u64,
            geometry: options.geometry.raw(),
            volume: volume.as_ptr(),
            base: base.as_ptr(),
            directory: directory
                .as_ref()
                .map_or(ptr::null(), |directory| directory.as_ptr()),
            region_bytes: options.region_bytes,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: everything lives during the call.
        check(|error| unsafe { call(&raw_options, &mut raw, error) })?;
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
        })
    }

    fn raw(&self) -> *mut sys::cbt_tracker {
        self.raw.as_ptr()
    }

    /// A tracker in which nothing has changed since `options.base`.
    pub fn create(options: &TrackerOptions) -> Result<Self> {
        Self::make(options, sys::cbt_tracker_create)
    }

    /// The tracker that was left in `options.directory`, closed or not. Look at its epochs then.
    pub fn recover(options: &TrackerOptions) -> Result<Self> {
        Self::make(options, sys::cbt_tracker_recover)
    }

    /// Announces a write, before it is issued. After a failure it must not be issued.
    pub fn begin(&self, offset: u64, length: u64) -> Result<Write<'_>> {
        let mut raw = sys::cbt_write { opaque: [0; 2] };
        // SAFETY: the tracker lives as long as the write.
        check(|error| unsafe {
            sys::cbt_tracker_begin(self.raw(), offset, length, &mut raw, error)
        })?;
        Ok(Write {
            raw,
            tracker: PhantomData,
        })
    }

    /// The same for many, without an end, for callers that keep writes and snapshots apart.
    pub fn mark(&self, writes: &[Extent]) -> Result<()> {
        let (offsets, lengths): (Vec<_>, Vec<_>) = writes
            .iter()
            .map(|extent| (extent.offset, extent.length))
            .unzip();
        // SAFETY: the arrays live during the call.
        check(|error| unsafe {
            sys::cbt_tracker_mark(
                self.raw(),
                offsets.as_ptr(),
                lengths.as_ptr(),
                offsets.len() as u64,
                error,
            )
        })
    }

    /// Begins an epoch at the snapshot `name`. Take the snapshot after this returns.
    pub fn open_epoch(&self, name: &str) -> Result<()> {
        let name = text(name)?;
        // SAFETY: the name lives during the call.
        check(|error| unsafe { sys::cbt_tracker_open_epoch(self.raw(), name.as_ptr(), error) })
    }

    /// Ends the older epoch and returns what changed in it, until [`acknowledge`](Self::acknowledge).
    #[must_use = "the map of an epoch is the only record of its changes"]
    pub fn close_epoch(&self) -> Result<Map> {
        // SAFETY: the tracker lives.
        Map::make(|map, error| unsafe { sys::cbt_tracker_close_epoch(self.raw(), map, error) })
    }

    /// The caller has stored the map.
    pub fn acknowledge(&self, map: &Map) -> Result<()> {
        // SAFETY: both live.
        check(|error| unsafe { sys::cbt_tracker_acknowledge(self.raw(), map.raw(), error) })
    }

    /// Drops the newer epoch because its snapshot was not taken.
    pub fn cancel_epoch(&self) -> Result<()> {
        // SAFETY: the tracker lives.
        check(|error| unsafe { sys::cbt_tracker_cancel_epoch(self.raw(), error) })
    }

    /// What has changed in the oldest open epoch so far.
    pub fn changes(&self) -> Result<Map> {
        // SAFETY: the tracker lives.
        Map::make(|map, error| unsafe { sys::cbt_tracker_changes(self.raw(), map, error) })
    }

    /// The epochs, oldest first: one or two.
    pub fn epochs(&self) -> Result<Vec<Epoch>> {
        // SAFETY: the tracker lives.
        let count = unsafe { sys::cbt_tracker_epochs(self.raw()) };
        (0..count)
            .map(|index| {
                let mut raw = sys::cbt_epoch {
                    struct_size: mem::size_of::<sys::cbt_epoch>() as u64,
                    closed: 0,
                    exact: 0,
                };
                let mut name = ptr::null_mut();
                // SAFETY: the tracker lives; the places are for what is returned.
                unsafe {
                    check(|error| sys::cbt_tracker_epoch(self.raw(), index, &mut raw, error))?;
                    check(|error| {
                        sys::cbt_tracker_epoch_base(self.raw(), index, &mut name, error)
                    })?;
                }
                let base = String::from_utf8_lossy(Bytes::of(name).as_slice()).into_owned();
                Ok(Epoch {
                    base,
                    closed: raw.closed != 0,
                    exact: raw.exact != 0,
                })
            })
            .collect()
    }

    /// Saves the exact state, so that a crash over-reports only what is written from now on.
    pub fn checkpoint(&self) -> Result<()> {
        // SAFETY: the tracker lives.
        check(|error| unsafe { sys::cbt_tracker_checkpoint(self.raw(), error) })
    }

    /// Saves the exact state and ends tracking. Dropping does it too, but loses an error, and the
    /// next [`recover`](Self::recover) reports more then.
    pub fn close(self) -> Result<()> {
        // SAFETY: the tracker lives.
        check(|error| unsafe { sys::cbt_tracker_close(self.raw(), error) })
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_tracker_free(self.raw.as_ptr()) }
    }
}
