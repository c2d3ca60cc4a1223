use std::{marker::PhantomData, mem, os::raw::c_void};

use cbt_sys as sys;

use crate::{
    cursor::{Cursor, Extent, Geometry},
    error::{forget_quietly, give, guarded, Code, Error, Result},
};

impl Cursor<'static> {
    /// The caller's own storage.
    pub fn from_source<S: Source + 'static>(source: S, geometry: Geometry) -> Result<Self> {
        let user = Box::into_raw(Box::new(Caller {
            source,
            panicked: false,
        }));
        let callbacks = sys::cbt_cursor_callbacks {
            struct_size: mem::size_of::<sys::cbt_cursor_callbacks>() as u64,
            user: user.cast(),
            seek: Some(seek::<S>),
            next: Some(next::<S>),
            release: Some(release::<S>),
        };
        // SAFETY: the callbacks get the `user` that belongs to them, one call at a time.
        let made = Self::make(|(cursor, error)| unsafe {
            sys::cbt_cursor_from_callbacks(&callbacks, &geometry.raw(), cursor, error)
        });
        if made.is_err() {
            // SAFETY: release() is not called after a failure.
            drop(unsafe { Box::from_raw(user) });
        }
        made
    }
}

/// A storage's own extents. Called by the thread that reads the cursor, one call at a time. A panic
/// is INTERNAL, and so is every call after it.
pub trait Source: Send {
    /// Moves to `offset` (bytes), a multiple of the granularity below the capacity: the next extents
    /// are those that end after it, cut at it.
    fn seek(&mut self, offset: u64) -> Result<()>;

    /// Pushes extents to `room` while there is some, and returns the coverage: the offset below
    /// which nothing remains to be reported. Extents ascend, don't overlap, begin at or after the
    /// coverage so far and end at or below the new one. Coverage that reaches the capacity ends the
    /// answer: nothing else does. Every answer is checked.
    fn next(&mut self, room: &mut Room<'_>) -> Result<u64>;
}

/// Where a [`Source`] leaves its extents.
#[derive(Debug)]
pub struct Room<'r> {
    offsets: *mut u64,
    lengths: *mut u64,
    size: usize,
    count: usize,
    arrays: PhantomData<&'r mut [u64]>,
}

impl Room<'_> {
    /// How many more extents fit.
    pub fn left(&self) -> usize {
        self.size - self.count
    }

    /// Adds an extent. Panics if there is no room for it.
    pub fn push(&mut self, extent: Extent) {
        assert!(
            self.count < self.size,
            "no room for another extent: see Room::left()"
        );
        // SAFETY: below `size`, in arrays of the library that may hold anything.
        unsafe {
            self.offsets.add(self.count).write(extent.offset);
            self.lengths.add(self.count).write(extent.length);
        }
        self.count += 1;
    }
}

struct Caller<S> {
    source: S,
    panicked: bool,
}

impl<S: Source> Caller<S> {
    fn call<T>(&mut self, what: &str, work: impl FnOnce(&mut S) -> Result<T>) -> Result<T> {
        if self.panicked {
            return Err(Error::new(Code::Internal, "the source panicked before"));
        }
        self.panicked = true;
        let source = &mut self.source;
        let mut returned = false;
        let result = guarded(what, || {
            let result = work(source);
            returned = true;
            result
        });
        self.panicked = !returned;
        result
    }
}

unsafe extern "C" fn seek<S: Source>(
    user: *mut c_void,
    offset: u64,
    error: *mut *mut sys::cbt_error,
) -> sys::cbt_code {
    // SAFETY: `user` is the Caller that from_source() made, and no other call runs on it.
    unsafe {
        let caller = &mut *user.cast::<Caller<S>>();
        give(
            caller.call("a source's seek()", |source| source.seek(offset)),
            error,
        )
    }
}

unsafe extern "C" fn next<S: Source>(
    user: *mut c_void,
    offsets: *mut u64,
    lengths: *mut u64,
    room: u64,
    count: *mut u64,
    covered: *mut u64,
    error: *mut *mut sys::cbt_error,
) -> sys::cbt_code {
    // SAFETY: as above; the arrays have `room` elements, and the results a place each.
    unsafe {
        let caller = &mut *user.cast::<Caller<S>>();
        let mut space = Room {
            offsets,
            lengths,
            size: room as usize,
            count: 0,
            arrays: PhantomData,
        };
        let result = caller.call("a source's next()", |source| source.next(&mut space));
        give(
            result.map(|reached| {
                *count = space.count as u64;
                *covered = reached;
            }),
            error,
        )
    }
}

unsafe extern "C" fn release<S>(user: *mut c_void) {
    // SAFETY: from Box::into_raw() of from_source(); called once.
    forget_quietly(unsafe { Box::from_raw(user.cast::<Caller<S>>()) });
}
