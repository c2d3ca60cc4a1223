use std::{ffi::CString, mem, ptr, ptr::NonNull, slice};

use cbt_sys as sys;

use crate::{
    cursor::Extent,
    error::{check, Result},
    map::text,
};

/// How a stream reports ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// Every tuple of the stream has the same size.
    FixedLength,
    /// Extents.
    VariableLength,
}

/// What the server's proof of completeness says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Proof {
    /// The server sends none.
    Absent,
    /// Nothing is missing.
    Holds,
    /// The same, of data that may have changed between two calls.
    HoldsForPlace,
    /// The same, but it does not reach back to the source.
    HoldsFromRelay,
}

/// What a stream is checked against.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckerOptions {
    /// As in the request, in bytes.
    pub starting_offset: u64,
    /// As in the request; 0: no limit.
    pub max_results: u32,
    /// [`Checker::finish`] fails unless the server proved that nothing is missing.
    pub require_proof: bool,
}

/// Decodes the messages of one stream for a client, and checks them against the rules that a
/// receiver may rely on.
#[derive(Debug)]
#[must_use = "a stream is complete only if Checker::finish() says so"]
pub struct Checker {
    raw: NonNull<sys::cbt_checker>,
}

// SAFETY: a handle may move between threads.
unsafe impl Send for Checker {}

/// A message, decoded.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Tuples<'c> {
    pub offsets: &'c [u64],
    pub lengths: &'c [u64],
    /// Of the volume, in bytes.
    pub capacity: u64,
    pub style: Style,
}

impl<'c> Tuples<'c> {
    /// The ranges one by one.
    pub fn extents(&self) -> impl ExactSizeIterator<Item = Extent> + 'c {
        self.offsets
            .iter()
            .zip(self.lengths)
            .map(|(&offset, &length)| Extent { offset, length })
    }
}

impl Checker {
    /// A checker before the first message.
    pub fn new(options: &CheckerOptions) -> Result<Self> {
        let raw_options = sys::cbt_checker_options {
            struct_size: mem::size_of::<sys::cbt_checker_options>() as u64,
            starting_offset: options.starting_offset,
            max_results: options.max_results,
            require_proof: options.require_proof.into(),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the options live during the call.
        check(|error| unsafe { sys::cbt_checker_new(&raw_options, &mut raw, error) })?;
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
        })
    }

    /// Decodes and checks the next message.
    pub fn message(&mut self, message: &[u8]) -> Result<Tuples<'_>> {
        // SAFETY: plain numbers and pointers; zeros are values of all.
        let mut raw: sys::cbt_tuples = unsafe { mem::zeroed() };
        // SAFETY: &mut: no other call runs; the message lives during the call.
        check(|error| unsafe {
            sys::cbt_checker_message(
                self.raw.as_ptr(),
                message.as_ptr().cast(),
                message.len() as u64,
                &mut raw,
                error,
            )
        })?;
        let array = |data: *const u64| match raw.count {
            0 => &[][..],
            // SAFETY: valid until the next call, for which the borrow of `self` has to end.
            count => unsafe { slice::from_raw_parts(data, count as usize) },
        };
        Ok(Tuples {
            offsets: array(raw.offsets),
            lengths: array(raw.lengths),
            capacity: raw.capacity,
            style: if raw.type_ == 1 {
                Style::FixedLength
            } else {
                Style::VariableLength
            },
        })
    }

    /// The verdict of the whole stream, once its call has ended with OK, with its trailing metadata.
    /// Any other end of a call is no answer.
    pub fn finish<'m>(
        &mut self,
        trailing: impl IntoIterator<Item = (&'m str, &'m str)>,
    ) -> Result<Proof> {
        let texts = trailing
            .into_iter()
            .map(|(key, value)| Ok((text(key)?, text(value)?)))
            .collect::<Result<Vec<(CString, CString)>>>()?;
        let entries: Vec<_> = texts
            .iter()
            .map(|(key, value)| sys::cbt_metadata {
                key: key.as_ptr(),
                value: value.as_ptr(),
            })
            .collect();
        let mut proof = 0;
        // SAFETY: &mut: no other call runs; the texts live during the call.
        check(|error| unsafe {
            sys::cbt_checker_finish(
                self.raw.as_ptr(),
                entries.as_ptr(),
                entries.len() as u64,
                &mut proof,
                error,
            )
        })?;
        Ok(match proof {
            1 => Proof::Holds,
            2 => Proof::HoldsForPlace,
            3 => Proof::HoldsFromRelay,
            _ => Proof::Absent,
        })
    }

    /// Where to resume (bytes) when the call ended early.
    pub fn resume_offset(&self) -> u64 {
        // SAFETY: a Checker is not Sync: no other call runs.
        unsafe { sys::cbt_checker_resume_offset(self.raw.as_ptr()) }
    }

    /// Tuples so far, and the bytes that they report.
    pub fn totals(&self) -> (u64, u64) {
        // SAFETY: as above.
        unsafe {
            (
                sys::cbt_checker_tuples(self.raw.as_ptr()),
                sys::cbt_checker_reported_bytes(self.raw.as_ptr()),
            )
        }
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this.
        unsafe { sys::cbt_checker_free(self.raw.as_ptr()) }
    }
}
