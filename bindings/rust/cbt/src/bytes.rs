use std::{marker::PhantomData, os::raw::c_void, ptr, ptr::NonNull, slice, sync::Arc};

use cbt_sys as sys;

use crate::error::{check, forget_quietly, Result};

/// Bytes that the library reads: a bitmap, a volume in memory, a map's serialisation. They can't
/// change as long as anything reads them, which the lifetime ensures for those that are borrowed.
///
/// ```compile_fail,E0597
/// # use cbt::{Bytes, Cursor, Geometry};
/// let geometry = Geometry { capacity: 64, granularity: 1 };
/// let cursor = {
///     let bits = vec![0u8; 8];
///     Cursor::from_bitmap(&Bytes::borrowed(&bits).unwrap(), Default::default(), geometry).unwrap()
/// };
/// cursor.covered(); // `bits` does not live long enough
/// ```
///
/// ```compile_fail,E0506
/// # use cbt::{Bytes, Cursor, Geometry};
/// # let geometry = Geometry { capacity: 64, granularity: 1 };
/// let mut bits = [0u8; 8];
/// let mut cursor =
///     Cursor::from_bitmap(&Bytes::borrowed(&bits).unwrap(), Default::default(), geometry).unwrap();
/// bits[0] = 1; // it is borrowed
/// cursor.next_batch().unwrap();
/// ```
#[derive(Debug)]
pub struct Bytes<'a> {
    raw: NonNull<sys::cbt_bytes>,
    borrowed: PhantomData<&'a [u8]>,
}

// SAFETY: any number of threads may use one handle, and the bytes are constant. Owners are Send.
unsafe impl Send for Bytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for Bytes<'_> {}

impl Bytes<'static> {
    /// A copy.
    pub fn copy(bytes: &[u8]) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the bytes are copied during the call.
        check(|error| unsafe {
            sys::cbt_bytes_copy(bytes.as_ptr().cast(), bytes.len() as u64, &mut raw, error)
        })?;
        Ok(Self::of(raw))
    }

    /// The vector itself, which is dropped when nothing reads it any more.
    pub fn owned(bytes: Vec<u8>) -> Result<Self> {
        let (data, size) = (bytes.as_ptr(), bytes.len());
        Self::keep(data, size, bytes)
    }

    /// The bytes of an `Arc`, without a copy.
    pub fn shared(bytes: Arc<[u8]>) -> Result<Self> {
        let (data, size) = (bytes.as_ptr(), bytes.len());
        Self::keep(data, size, bytes)
    }

    /// `data` and `size` are the bytes of `owner` wherever that is moved.
    fn keep<T: Send + Sync + 'static>(data: *const u8, size: usize, owner: T) -> Result<Self> {
        unsafe extern "C" fn release<T>(owner: *mut c_void) {
            // SAFETY: from Box::into_raw() below; called once.
            forget_quietly(unsafe { Box::from_raw(owner.cast::<T>()) });
        }
        let owner = Box::into_raw(Box::new(owner));
        let mut raw = ptr::null_mut();
        // SAFETY: `owner` keeps the bytes until release() is called.
        let made = check(|error| unsafe {
            sys::cbt_bytes_own(
                data.cast(),
                size as u64,
                owner.cast(),
                Some(release::<T>),
                &mut raw,
                error,
            )
        });
        if let Err(failure) = made {
            // SAFETY: release() is not called after a failure.
            drop(unsafe { Box::from_raw(owner) });
            return Err(failure);
        }
        Ok(Self::of(raw))
    }
}

impl<'a> Bytes<'a> {
    /// The caller's own bytes, without a copy.
    pub fn borrowed(bytes: &'a [u8]) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: what is made of the handle has the lifetime, too.
        check(|error| unsafe {
            sys::cbt_bytes_borrowed(bytes.as_ptr().cast(), bytes.len() as u64, &mut raw, error)
        })?;
        Ok(Self::of(raw))
    }

    pub(crate) fn of(raw: *mut sys::cbt_bytes) -> Self {
        Self {
            raw: NonNull::new(raw).expect("a handle after success"),
            borrowed: PhantomData,
        }
    }

    pub(crate) fn raw(&self) -> *const sys::cbt_bytes {
        self.raw.as_ptr()
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: valid as long as the handle; NULL only for no bytes.
        unsafe {
            let size = sys::cbt_bytes_size(self.raw());
            if size == 0 {
                return &[];
            }
            slice::from_raw_parts(
                sys::cbt_bytes_data_borrowed(self.raw()).cast(),
                size as usize,
            )
        }
    }
}

impl AsRef<[u8]> for Bytes<'_> {
    fn as_ref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl Drop for Bytes<'_> {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_bytes_free(self.raw.as_ptr()) }
    }
}
