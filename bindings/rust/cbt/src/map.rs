use std::{
    ffi::{CStr, CString},
    mem,
    path::Path,
    ptr,
    ptr::NonNull,
};

use cbt_sys as sys;

use crate::{
    bytes::Bytes,
    cursor::{Cursor, Extent, Geometry},
    error::{check, Code, Error, Result},
};

pub(crate) fn text(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(Code::InvalidArgument, "a text holds a NUL"))
}

pub(crate) fn path_text(path: &Path) -> Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(Code::InvalidArgument, "a path holds a NUL"))
}

/// The set of changed blocks between two snapshots, compressed. Constant, but for its names.
#[derive(Debug)]
pub struct Map {
    raw: NonNull<sys::cbt_map>,
}

// SAFETY: any number of threads may read one map; what changes it takes &mut.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

/// What a map holds. Blocks and bytes are those that changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct MapInfo {
    pub geometry: Geometry,
    pub blocks: u64,
    pub bytes: u64,
    /// Of neighbouring blocks; a cursor returns one extent for each.
    pub runs: u64,
    /// The size of the roaring serialisation.
    pub portable_bytes: u64,
}

impl Map {
    pub(crate) fn make(
        call: impl FnOnce(*mut *mut sys::cbt_map, *mut *mut sys::cbt_error) -> sys::cbt_code,
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(|error| call(&mut raw, error))?;
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
        })
    }

    pub(crate) fn raw(&self) -> *const sys::cbt_map {
        self.raw.as_ptr()
    }

    /// Everything that the cursor reports from 0 on, rounded outward to `granularity` bytes (0: the
    /// cursor's). After an error the cursor can't be read until a seek succeeds.
    pub fn from_cursor(cursor: &mut Cursor<'_>, granularity: u64) -> Result<Self> {
        // SAFETY: &mut: no other call runs on the cursor, which the library does not keep.
        Self::make(|map, error| unsafe {
            sys::cbt_map_from_cursor(cursor.as_raw(), granularity, map, error)
        })
    }

    /// A map in the portable serialisation of roaring bitmaps with 64 or 32 `bits`.
    pub fn from_portable(portable: &Bytes<'static>, bits: i32, geometry: Geometry) -> Result<Self> {
        // SAFETY: the map keeps the bytes.
        Self::make(|map, error| unsafe {
            sys::cbt_map_from_portable(portable.raw(), bits, &geometry.raw(), map, error)
        })
    }

    /// Reads a file and checks all of it.
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = std::fs::read(path).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                std::io::ErrorKind::PermissionDenied => Code::PermissionDenied,
                _ => Code::Unavailable,
            };
            Error::new(code, format!("{}: {error}", path.display()))
        })?;
        Self::decode(&file)
    }

    /// Maps a file into memory and checks all of it: no copy.
    ///
    /// # Safety
    /// As long as the map, or anything made of it, exists, the file must not be modified in place
    /// or cut. [`save`](Self::save) replaces files and is safe.
    pub unsafe fn load_mapped(path: impl AsRef<Path>) -> Result<Self> {
        let path = path_text(path.as_ref())?;
        // SAFETY: the path lives during the call; the file is the caller's promise.
        Self::make(|map, error| unsafe { sys::cbt_map_load(path.as_ptr(), map, error) })
    }

    /// The map in the bytes of a file.
    pub fn decode(file: &[u8]) -> Result<Self> {
        // SAFETY: the bytes are copied during the call.
        Self::make(|map, error| unsafe {
            sys::cbt_map_decode(file.as_ptr().cast(), file.len() as u64, map, error)
        })
    }

    /// Writes the map to `path`, replacing a file, and waits for the disk.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path_text(path.as_ref())?;
        // SAFETY: the path lives during the call.
        check(|error| unsafe { sys::cbt_map_save(self.raw(), path.as_ptr(), 0, error) })
    }

    /// The bytes of the file that [`save`](Self::save) writes.
    pub fn encode(&self) -> Result<Bytes<'static>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the map lives.
        check(|error| unsafe { sys::cbt_map_encode(self.raw(), &mut raw, error) })?;
        Ok(Bytes::of(raw))
    }

    /// The portable serialisation with 64 or 32 `bits`.
    pub fn to_portable(&self, bits: i32) -> Result<Bytes<'static>> {
        let mut raw = ptr::null_mut();
        // SAFETY: the bytes keep the map.
        check(|error| unsafe { sys::cbt_map_to_portable(self.raw(), bits, &mut raw, error) })?;
        Ok(Bytes::of(raw))
    }

    /// What it holds. One pass over the map.
    pub fn info(&self) -> Result<MapInfo> {
        // SAFETY: plain numbers.
        let mut raw: sys::cbt_map_info = unsafe { mem::zeroed() };
        raw.struct_size = mem::size_of_val(&raw) as u64;
        // SAFETY: the map lives.
        check(|error| unsafe { sys::cbt_map_get_info(self.raw(), &mut raw, error) })?;
        Ok(MapInfo {
            geometry: Geometry {
                capacity: raw.geometry.capacity,
                granularity: raw.geometry.granularity,
            },
            blocks: raw.blocks,
            bytes: raw.bytes,
            runs: raw.runs,
            portable_bytes: raw.portable_bytes,
        })
    }

    /// Whether block `block` has changed.
    pub fn contains(&self, block: u64) -> bool {
        // SAFETY: the map lives.
        unsafe { sys::cbt_map_contains(self.raw(), block) != 0 }
    }

    fn name(&self, which: i32) -> &str {
        // SAFETY: valid until the map is changed, which takes &mut.
        unsafe { CStr::from_ptr(sys::cbt_map_name_borrowed(self.raw(), which)) }
            .to_str()
            .unwrap_or("")
    }
    /// The volume; "" if unknown.
    pub fn volume(&self) -> &str {
        self.name(0)
    }
    /// The base snapshot; "" of what is allocated.
    pub fn base(&self) -> &str {
        self.name(1)
    }
    /// The target snapshot; "" if unknown.
    pub fn target(&self) -> &str {
        self.name(2)
    }

    /// Names volume, base and target.
    pub fn set_identity(&mut self, volume: &str, base: &str, target: &str) -> Result<()> {
        let (volume, base, target) = (text(volume)?, text(base)?, text(target)?);
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe {
            sys::cbt_map_set_identity(
                self.raw.as_ptr(),
                volume.as_ptr(),
                base.as_ptr(),
                target.as_ptr(),
                error,
            )
        })
    }

    /// What is in any of the maps, of which there is one or more.
    pub fn union<'m>(maps: impl IntoIterator<Item = &'m Map>) -> Result<Self> {
        let maps: Vec<_> = maps.into_iter().map(Map::raw).collect();
        // SAFETY: the maps live during the call.
        Self::make(|map, error| unsafe {
            sys::cbt_map_union(maps.as_ptr(), maps.len() as u64, map, error)
        })
    }

    /// What is in both.
    pub fn intersection(&self, other: &Map) -> Result<Self> {
        // SAFETY: the maps live during the call.
        Self::make(|map, error| unsafe {
            sys::cbt_map_intersection(self.raw(), other.raw(), map, error)
        })
    }

    /// What is in `self` and not in `other`, which must be exact.
    pub fn difference(&self, other: &Map) -> Result<Self> {
        // SAFETY: the maps live during the call.
        Self::make(|map, error| unsafe {
            sys::cbt_map_difference(self.raw(), other.raw(), map, error)
        })
    }

    /// What is in exactly one.
    pub fn symmetric_difference(&self, other: &Map) -> Result<Self> {
        // SAFETY: the maps live during the call.
        Self::make(|map, error| unsafe {
            sys::cbt_map_symmetric_difference(self.raw(), other.raw(), map, error)
        })
    }

    /// The map of another geometry, rounded outward, cut, or with everything past its end as
    /// changed.
    pub fn with_geometry(&self, geometry: Geometry) -> Result<Self> {
        // SAFETY: the map lives during the call.
        Self::make(|map, error| unsafe {
            sys::cbt_map_with_geometry(self.raw(), &geometry.raw(), map, error)
        })
    }
}

/// The same geometry and the same blocks. Names don't count.
impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        // SAFETY: the maps live.
        unsafe { sys::cbt_map_equal(self.raw(), other.raw()) != 0 }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_map_free(self.raw.as_ptr()) }
    }
}

/// Collects changes in any order.
#[derive(Debug)]
pub struct MapBuilder {
    raw: NonNull<sys::cbt_map_builder>,
}

// SAFETY: a handle may move between threads.
unsafe impl Send for MapBuilder {}

impl MapBuilder {
    /// A builder without changes.
    pub fn new(geometry: Geometry) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the geometry lives during the call.
        check(|error| unsafe { sys::cbt_map_builder_new(&geometry.raw(), &mut raw, error) })?;
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
        })
    }

    /// Adds the blocks that hold a byte of the extents. After any failure but OUT_OF_RANGE the
    /// builder makes no map any more.
    pub fn add(&mut self, extents: &[Extent]) -> Result<()> {
        let (offsets, lengths): (Vec<_>, Vec<_>) = extents
            .iter()
            .map(|extent| (extent.offset, extent.length))
            .unzip();
        // SAFETY: &mut: no other call runs; the arrays live during it.
        check(|error| unsafe {
            sys::cbt_map_builder_add(
                self.raw.as_ptr(),
                offsets.as_ptr(),
                lengths.as_ptr(),
                offsets.len() as u64,
                error,
            )
        })
    }

    /// The map of everything that was added. Leaves the builder empty.
    pub fn build(&mut self) -> Result<Map> {
        // SAFETY: &mut: no other call runs.
        Map::make(|map, error| unsafe { sys::cbt_map_builder_build(self.raw.as_ptr(), map, error) })
    }
}

impl Drop for MapBuilder {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_map_builder_free(self.raw.as_ptr()) }
    }
}
