use std::{ffi::CString, fmt, marker::PhantomData, mem, ptr, ptr::NonNull, slice, time::Duration};

use cbt_sys as sys;

use crate::{
    bytes::Bytes,
    error::{check, Code, Error, Result},
    map::Map,
};

/// The size of a volume and of its blocks, both in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Geometry {
    /// At most 2^63 - 1. Need not be a multiple of the granularity.
    pub capacity: u64,
    /// 1 to 2^62.
    pub granularity: u64,
}

impl Geometry {
    pub(crate) fn raw(self) -> sys::cbt_geometry {
        sys::cbt_geometry {
            capacity: self.capacity,
            granularity: self.granularity,
        }
    }
}

/// A range of a volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
}

/// How a bitmap's bytes hold its bits. The default: from bit 0 on, least significant bit first, set
/// bits mean changed (or allocated).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BitmapLayout {
    /// The index of the bitmap's first bit in the bytes.
    pub first_bit: u64,
    /// Bit 0 of a byte is the most significant one.
    pub most_significant_first: bool,
    /// Clear bits mean changed.
    pub inverted: bool,
    /// The bytes of each word of this many bytes (1, 2, 4 or 8) are reversed; 0 is 1.
    pub reversed_word_bytes: u32,
}

impl BitmapLayout {
    fn raw(self) -> sys::cbt_bitmap_layout {
        sys::cbt_bitmap_layout {
            struct_size: mem::size_of::<sys::cbt_bitmap_layout>() as u64,
            first_bit: self.first_bit,
            most_significant_first: self.most_significant_first.into(),
            inverted: self.inverted.into(),
            reversed_word_bytes: self.reversed_word_bytes,
            reserved: 0,
        }
    }
}

/// How two bitmaps are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Operation {
    /// Set in exactly one: blocks whose state differs.
    Xor = 0,
    /// Set in the target and not in the base: newly set.
    AndNot = 1,
    /// Set in either.
    Or = 2,
    /// Set in both.
    And = 3,
}

/// What a source is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Purpose {
    /// What the input reports; an error if it can report both.
    #[default]
    Any = 0,
    /// What is allocated.
    Allocated = 1,
    /// What has changed.
    Delta = 2,
}

/// Options of [`Cursor::open`]; `cbt_source_options` in `cbt/c/cursor.h` has the details.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// `FORMAT` or `FORMAT:KEY=VALUE,...`. Without one the content decides, and a guest that writes
    /// to the volume controls the content: name it wherever it is known.
    pub format: Option<String>,
    /// The address of an earlier state of the volume.
    pub base: Option<String>,
    /// What is asked.
    pub purpose: Purpose,
    /// Read two images' reflinks instead of their bytes.
    pub by_extents: bool,
    /// The size of the target (bytes), for inputs that do not hold it.
    pub capacity: Option<u64>,
    /// The size of a larger base.
    pub base_capacity: Option<u64>,
    /// Extents are rounded outward to multiples of it; 4096 by default.
    pub block_size: Option<u64>,
    /// The most time that all calls together may take.
    pub time_limit: Option<Duration>,
}

/// What one call returns: extents that ascend and never overlap.
///
/// The answer is complete when [`complete`](Batch::complete) is true, and for no other reason. An
/// empty batch only means that a region without extents was passed.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'c> {
    offsets: &'c [u64],
    lengths: &'c [u64],
    covered: u64,
    complete: bool,
}

impl<'c> Batch<'c> {
    /// # Safety
    /// The arrays of `raw` are valid for 'c.
    unsafe fn of(raw: &sys::cbt_batch) -> Self {
        let array = |data: *const u64| match raw.count {
            0 => &[][..],
            // SAFETY: as above; no pointer to no elements is made.
            count => unsafe { slice::from_raw_parts(data, count as usize) },
        };
        Self {
            offsets: array(raw.offsets),
            lengths: array(raw.lengths),
            covered: raw.covered,
            complete: raw.complete != 0,
        }
    }

    /// Where the extents begin, in bytes.
    pub fn offsets(&self) -> &'c [u64] {
        self.offsets
    }
    /// Their lengths in bytes; as many.
    pub fn lengths(&self) -> &'c [u64] {
        self.lengths
    }
    /// The extents one by one.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + 'c {
        self.offsets
            .iter()
            .zip(self.lengths)
            .map(|(&offset, &length)| Extent { offset, length })
    }
    /// Every extent below this offset (bytes) has been returned.
    pub fn covered(&self) -> u64 {
        self.covered
    }
    /// Everything has been returned.
    pub fn complete(&self) -> bool {
        self.complete
    }
}

/// The same with arrays of its own, as [`Batches`] yields it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OwnedBatch {
    pub offsets: Vec<u64>,
    pub lengths: Vec<u64>,
    pub covered: u64,
    pub complete: bool,
}

impl OwnedBatch {
    /// The extents one by one.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + '_ {
        self.offsets
            .iter()
            .zip(&self.lengths)
            .map(|(&offset, &length)| Extent { offset, length })
    }
}

/// A position in a volume's changed (or allocated) extents. `'a` is the life of the bytes that it
/// reads without owning them.
///
/// It may move between threads; one at a time uses it.
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<cbt::Cursor>();
/// ```
pub struct Cursor<'a> {
    raw: NonNull<sys::cbt_cursor>,
    borrowed: PhantomData<&'a [u8]>,
}

// SAFETY: a handle may move between threads; a Source is Send.
unsafe impl Send for Cursor<'_> {}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("geometry", &self.geometry())
            .field("covered", &self.covered())
            .finish()
    }
}

impl Drop for Cursor<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_cursor_free(self.raw.as_ptr()) }
    }
}

type Making<'c> = (*mut *mut sys::cbt_cursor, *mut *mut sys::cbt_error);

impl<'a> Cursor<'a> {
    pub(crate) fn make(call: impl FnOnce(Making) -> sys::cbt_code) -> Result<Self> {
        let mut raw = ptr::null_mut();
        check(|error| call((&mut raw, error)))?;
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
            borrowed: PhantomData,
        })
    }

    /// Hands the cursor to a call that consumes it.
    pub(crate) fn into_raw(self) -> *mut sys::cbt_cursor {
        mem::ManuallyDrop::new(self).raw.as_ptr()
    }

    // --- Making cursors

    /// The runs of set bits of `bits` as extents: a bit for each block of the geometry.
    pub fn from_bitmap(bits: &Bytes<'a>, layout: BitmapLayout, geometry: Geometry) -> Result<Self> {
        // SAFETY: the structures live during the call; the cursor keeps the bytes.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_from_bitmap(bits.raw(), &layout.raw(), &geometry.raw(), cursor, error)
        })
    }

    /// The same for a combination of two bitmaps of one layout, which is not built in memory.
    pub fn from_bitmaps(
        base: &Bytes<'a>,
        target: &Bytes<'a>,
        operation: Operation,
        layout: BitmapLayout,
        geometry: Geometry,
    ) -> Result<Self> {
        // SAFETY: as above.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_from_bitmaps(
                base.raw(),
                target.raw(),
                operation as i32,
                &layout.raw(),
                &geometry.raw(),
                cursor,
                error,
            )
        })
    }

    /// The blocks of `block_size` bytes (512 to 64 MiB) that hold a byte other than 0.
    pub fn from_memory(memory: &Bytes<'a>, block_size: u64) -> Result<Self> {
        // SAFETY: as above.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_from_memory(memory.raw(), block_size, cursor, error)
        })
    }

    /// The blocks in which two ranges of the same size differ.
    pub fn from_memory_delta(
        base: &Bytes<'a>,
        target: &Bytes<'a>,
        block_size: u64,
    ) -> Result<Self> {
        // SAFETY: as above.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_from_memory_delta(base.raw(), target.raw(), block_size, cursor, error)
        })
    }

    // --- Transforms: cursors over cursors

    fn transform(
        self,
        call: impl FnOnce(*mut sys::cbt_cursor, Making) -> sys::cbt_code,
    ) -> Result<Self> {
        // The library consumes the input, whether it succeeds or fails.
        let input = self.into_raw();
        Self::make(|making| call(input, making))
    }

    /// Merges neighbours with at most `max_gap` bytes between them.
    pub fn coalesce(self, max_gap: u64) -> Result<Self> {
        // SAFETY: the input is ours and given away; no other call runs on it.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_coalesce(input, max_gap, cursor, error)
        })
    }

    /// Cuts extents longer than `max_length` bytes.
    pub fn split(self, max_length: u64) -> Result<Self> {
        // SAFETY: as above.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_split(input, max_length, cursor, error)
        })
    }

    /// Rounds extents outward to multiples of `granularity` bytes.
    pub fn align_outward(self, granularity: u64) -> Result<Self> {
        // SAFETY: as above.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_align_outward(input, granularity, cursor, error)
        })
    }

    /// Keeps what lies in [begin, end).
    pub fn clip(self, begin: u64, end: u64) -> Result<Self> {
        // SAFETY: as above.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_clip(input, begin, end, cursor, error)
        })
    }

    /// Turns extents into blocks of `block_size` bytes; the last one keeps its size even past the
    /// capacity.
    pub fn to_blocks(self, block_size: u64) -> Result<Self> {
        // SAFETY: as above.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_to_blocks(input, block_size, cursor, error)
        })
    }

    /// What lies in both.
    pub fn intersect(self, other: Self) -> Result<Self> {
        let other = other.into_raw();
        // SAFETY: both are ours and given away.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_intersect(input, other, cursor, error)
        })
    }

    /// What lies in `self` and not in `other`, which must be exact.
    pub fn subtract(self, other: Self) -> Result<Self> {
        let other = other.into_raw();
        // SAFETY: both are ours and given away.
        self.transform(|input, (cursor, error)| unsafe {
            sys::cbt_cursor_subtract(input, other, cursor, error)
        })
    }

    /// What lies in any of the inputs: one or more, of one capacity.
    pub fn union(inputs: impl IntoIterator<Item = Self>) -> Result<Self> {
        let inputs: Vec<_> = inputs.into_iter().map(Self::into_raw).collect();
        // SAFETY: they are ours and given away.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_union(inputs.as_ptr(), inputs.len() as u64, cursor, error)
        })
    }

    // --- Reading

    /// The next extents, without a copy. Call it until [`Batch::complete`], or take
    /// [`batches`](Self::batches) or [`for_each`](Self::for_each), which are harder to get wrong.
    #[must_use = "a batch that is dropped is missing from the answer"]
    pub fn next_batch(&mut self) -> Result<Batch<'_>> {
        // SAFETY: plain numbers and pointers; zeros are values of all.
        let mut batch = unsafe { mem::zeroed() };
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe { sys::cbt_cursor_next(self.raw.as_ptr(), &mut batch, error) })?;
        // SAFETY: valid until the next call, for which the borrow of `self` has to end.
        Ok(unsafe { Batch::of(&batch) })
    }

    /// Passes every batch to `take`. OK only if the cursor was complete and `take` took everything.
    pub fn for_each(&mut self, mut take: impl FnMut(Batch<'_>) -> Result<()>) -> Result<()> {
        loop {
            let batch = self.next_batch()?;
            let complete = batch.complete();
            take(batch)?;
            if complete {
                return Ok(());
            }
        }
    }

    /// Every extent from here to the end, in memory.
    pub fn extents(&mut self) -> Result<Vec<Extent>> {
        let mut found = Vec::new();
        self.for_each(|batch| {
            found.extend(batch.extents());
            Ok(())
        })?;
        Ok(found)
    }

    /// The batches as an iterator, each with a copy of its extents. Read it to its end: see
    /// [`Batches`].
    pub fn batches(&mut self) -> Batches<'_, 'a> {
        Batches {
            cursor: self,
            done: false,
        }
    }

    /// Sets the most extents of a batch: 1 to 2^20; 1,024 by default.
    pub fn set_batch(&mut self, extents: u64) -> Result<()> {
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe { sys::cbt_cursor_set_batch(self.raw.as_ptr(), extents, error) })
    }

    /// Moves to `offset` (bytes), rounded down to the granularity. What follows is the whole answer
    /// cut at that point.
    pub fn seek(&mut self, offset: u64) -> Result<()> {
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe { sys::cbt_cursor_seek(self.raw.as_ptr(), offset, error) })
    }

    /// Every extent below this offset (bytes) has been returned.
    pub fn covered(&self) -> u64 {
        // SAFETY: a Cursor is not Sync: no other call runs.
        unsafe { sys::cbt_cursor_covered(self.raw.as_ptr()) }
    }

    /// The size of the volume, and the unit in which the cursor knows about changes.
    pub fn geometry(&self) -> Geometry {
        // SAFETY: as above.
        let raw = unsafe { sys::cbt_cursor_geometry(self.raw.as_ptr()) };
        Geometry {
            capacity: raw.capacity,
            granularity: raw.granularity,
        }
    }

    pub(crate) fn as_raw(&mut self) -> *mut sys::cbt_cursor {
        self.raw.as_ptr()
    }
}

impl Cursor<'static> {
    /// Extents that ascend, don't overlap and lie in the geometry; they are copied.
    pub fn from_extents(extents: &[Extent], geometry: Geometry) -> Result<Self> {
        let (offsets, lengths): (Vec<_>, Vec<_>) = extents
            .iter()
            .map(|extent| (extent.offset, extent.length))
            .unzip();
        // SAFETY: the arrays live during the call.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_from_extents(
                offsets.as_ptr(),
                lengths.as_ptr(),
                offsets.len() as u64,
                &geometry.raw(),
                cursor,
                error,
            )
        })
    }

    /// The extents of a map, which the cursor keeps.
    pub fn from_map(map: &Map) -> Result<Self> {
        // SAFETY: the library keeps what it needs of the map.
        Self::make(|(cursor, error)| unsafe { sys::cbt_cursor_from_map(map.raw(), cursor, error) })
    }

    /// A file, a device or an NBD server: what the command's `--from` reads.
    pub fn open(address: &str, options: &SourceOptions) -> Result<Self> {
        let text = |text: &str| {
            CString::new(text).map_err(|_| Error::new(Code::InvalidArgument, "a text holds a NUL"))
        };
        let optional = |value: &Option<String>| value.as_deref().map(text).transpose();
        let (address, format, base) = (
            text(address)?,
            optional(&options.format)?,
            optional(&options.base)?,
        );
        let pointer =
            |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        let raw = sys::cbt_source_options {
            struct_size: mem::size_of::<sys::cbt_source_options>() as u64,
            format: pointer(&format),
            base: pointer(&base),
            purpose: options.purpose as i32,
            by_extents: options.by_extents.into(),
            capacity: options.capacity.unwrap_or(0),
            base_capacity: options.base_capacity.unwrap_or(0),
            block_size: options.block_size.unwrap_or(0),
            // 0 would be no limit.
            time_limit_ms: options
                .time_limit
                .map_or(0, |time| (time.as_millis() as u64).max(1)),
        };
        // SAFETY: the texts live during the call.
        Self::make(|(cursor, error)| unsafe {
            sys::cbt_source_open(address.as_ptr(), &raw, cursor, error)
        })
    }
}

/// The batches of a cursor, to the end of the answer or to an error.
///
/// Dropped before either, as by `break` or `?`, it has no answer: a debug build panics then, unless
/// [`abandon`](Self::abandon) said that this is meant. [`Cursor::for_each`] stops at the first
/// error of the loop's body without that.
#[must_use = "a cursor that is not read to its end has no answer"]
#[derive(Debug)]
pub struct Batches<'c, 'a> {
    cursor: &'c mut Cursor<'a>,
    done: bool,
}

impl Batches<'_, '_> {
    /// Stops early: what was read is not the whole answer.
    pub fn abandon(mut self) {
        self.done = true;
    }
}

impl Iterator for Batches<'_, '_> {
    type Item = Result<OwnedBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.cursor.next_batch().map(|batch| OwnedBatch {
            offsets: batch.offsets.to_vec(),
            lengths: batch.lengths.to_vec(),
            covered: batch.covered,
            complete: batch.complete,
        });
        self.done = !matches!(&item, Ok(batch) if !batch.complete);
        Some(item)
    }
}

impl std::iter::FusedIterator for Batches<'_, '_> {}

impl Drop for Batches<'_, '_> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) && !self.done && !std::thread::panicking() {
            panic!(
                "batches of a cursor were dropped at {} of {} bytes: there is no answer. Read them \
                 to the end, or call abandon()",
                self.cursor.covered(),
                self.cursor.geometry().capacity
            );
        }
    }
}
