use std::{ffi::CStr, mem, path::Path, ptr, ptr::NonNull};

use cbt_sys as sys;

use crate::{
    cursor::{Cursor, Geometry},
    error::{check, Result},
    map::{path_text, text, Map},
};

/// What a chain is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Access {
    Read = 0,
    Change = 1,
}

/// Options of chains.
#[derive(Clone, Debug, Default)]
pub struct ChainOptions {
    /// What messages call the directory instead of its path.
    pub name: Option<String>,
    /// Changes don't wait for the disk.
    pub no_sync: bool,
}

/// A snapshot of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub id: String,
    /// The size of the volume then, in bytes.
    pub capacity: u64,
    /// When it was taken, in nanoseconds since 1970 (UTC), if that is known.
    pub time: Option<i64>,
}

/// What the engine takes for a time that is not known.
fn raw_time(time: Option<i64>) -> i64 {
    time.unwrap_or(i64::MIN)
}

/// The change maps of a volume's snapshots in a directory, from which any delta is found. One
/// process at a time can have it open for changes.
#[derive(Debug)]
pub struct Chain {
    raw: NonNull<sys::cbt_chain>,
}

// SAFETY: calls that take a constant chain may overlap; the others take &mut.
unsafe impl Send for Chain {}
// SAFETY: as above.
unsafe impl Sync for Chain {}

impl Chain {
    fn make(
        options: &ChainOptions,
        call: impl FnOnce(
            &sys::cbt_chain_options,
            *mut *mut sys::cbt_chain,
            *mut *mut sys::cbt_error,
        ) -> sys::cbt_code,
    ) -> Result<Self> {
        let name = options.name.as_deref().map(text).transpose()?;
        let raw_options = sys::cbt_chain_options {
            struct_size: mem::size_of::<sys::cbt_chain_options>() as u64,
            name: name.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
            no_sync: options.no_sync.into(),
            reserved: 0,
        };
        let mut raw = ptr::null_mut();
        check(|error| call(&raw_options, &mut raw, error))?;
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
        })
    }

    /// A new chain whose first snapshot is `first`, of a volume of `geometry.capacity` bytes then.
    pub fn create(
        directory: impl AsRef<Path>,
        volume: &str,
        first: &str,
        geometry: Geometry,
        options: &ChainOptions,
    ) -> Result<Self> {
        Self::create_at(directory, volume, first, geometry, None, options)
    }

    /// As `create`, with the time at which `first` was taken: nanoseconds since 1970 (UTC).
    pub fn create_at(
        directory: impl AsRef<Path>,
        volume: &str,
        first: &str,
        geometry: Geometry,
        time: Option<i64>,
        options: &ChainOptions,
    ) -> Result<Self> {
        let directory = path_text(directory.as_ref())?;
        let (volume, first) = (text(volume)?, text(first)?);
        // SAFETY: everything lives during the call.
        Self::make(options, |options, chain, error| unsafe {
            sys::cbt_chain_create_at(
                directory.as_ptr(),
                volume.as_ptr(),
                first.as_ptr(),
                &geometry.raw(),
                raw_time(time),
                options,
                chain,
                error,
            )
        })
    }

    /// A chain that exists.
    pub fn open(
        directory: impl AsRef<Path>,
        access: Access,
        options: &ChainOptions,
    ) -> Result<Self> {
        let directory = path_text(directory.as_ref())?;
        // SAFETY: everything lives during the call.
        Self::make(options, |options, chain, error| unsafe {
            sys::cbt_chain_open(directory.as_ptr(), access as i32, options, chain, error)
        })
    }

    /// How many snapshots it has.
    pub fn count(&self) -> u64 {
        // SAFETY: the chain lives.
        unsafe { sys::cbt_chain_count(self.raw.as_ptr()) }
    }

    /// The snapshot at `index`, oldest first.
    pub fn snapshot(&self, index: u64) -> Result<Snapshot> {
        let (mut id, mut capacity, mut known, mut time) = (ptr::null(), 0, 0, 0);
        // SAFETY: the chain lives; the id is copied before it can change.
        unsafe {
            check(|error| {
                sys::cbt_chain_snapshot_borrowed(
                    self.raw.as_ptr(),
                    index,
                    &mut id,
                    &mut capacity,
                    error,
                )
            })?;
            check(|error| {
                sys::cbt_chain_snapshot_time(self.raw.as_ptr(), index, &mut known, &mut time, error)
            })?;
            Ok(Snapshot {
                id: CStr::from_ptr(id).to_string_lossy().into_owned(),
                capacity,
                time: (known != 0).then_some(time),
            })
        }
    }

    /// Adds a snapshot: the map, with its names, holds what changed since the newest one.
    pub fn append(&mut self, map: &Map) -> Result<()> {
        self.append_at(map, None)
    }

    /// As `append`, with the time at which the snapshot was taken: nanoseconds since 1970 (UTC).
    pub fn append_at(&mut self, map: &Map, time: Option<i64>) -> Result<()> {
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe {
            sys::cbt_chain_append_at(self.raw.as_ptr(), map.raw(), raw_time(time), error)
        })
    }

    /// Removes a snapshot at any position but not the last one that is left.
    pub fn remove(&mut self, id: &str) -> Result<()> {
        let id = text(id)?;
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe { sys::cbt_chain_remove(self.raw.as_ptr(), id.as_ptr(), error) })
    }

    /// The extents that changed from `base` to `target`.
    pub fn delta(&self, base: &str, target: &str) -> Result<Cursor<'static>> {
        let (base, target) = (text(base)?, text(target)?);
        // SAFETY: the cursor keeps what it needs of the chain.
        Cursor::make(|(cursor, error)| unsafe {
            sys::cbt_chain_delta(
                self.raw.as_ptr(),
                base.as_ptr(),
                target.as_ptr(),
                cursor,
                error,
            )
        })
    }

    /// Reads every file and compares it with the manifest.
    pub fn verify(&self) -> Result<()> {
        // SAFETY: the chain lives.
        check(|error| unsafe { sys::cbt_chain_verify(self.raw.as_ptr(), error) })
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_chain_free(self.raw.as_ptr()) }
    }
}
