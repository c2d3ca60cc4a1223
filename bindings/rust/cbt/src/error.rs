use std::{
    any::Any,
    ffi::CStr,
    fmt,
    os::raw::c_char,
    panic::{catch_unwind, AssertUnwindSafe},
    ptr,
};

use cbt_sys as sys;

/// Why a call failed, with the numbers of gRPC's status codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(i32)]
#[allow(missing_docs)]
pub enum Code {
    Cancelled = 1,
    Unknown = 2,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    OutOfRange = 11,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    DataLoss = 15,
    Unauthenticated = 16,
}

impl Code {
    fn of(number: sys::cbt_code) -> Self {
        use Code::*;
        const CODES: [Code; 16] = [
            Cancelled,
            Unknown,
            InvalidArgument,
            DeadlineExceeded,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unimplemented,
            Internal,
            Unavailable,
            DataLoss,
            Unauthenticated,
        ];
        usize::try_from(number)
            .ok()
            .and_then(|n| CODES.get(n.wrapping_sub(1)))
            .copied()
            .unwrap_or(Unknown)
    }

    /// As gRPC spells it, such as `NOT_FOUND`.
    pub fn name(self) -> &'static str {
        // SAFETY: the text is static and ends with a NUL.
        unsafe { CStr::from_ptr(sys::cbt_code_name(self as i32)) }
            .to_str()
            .unwrap_or("UNKNOWN")
    }
}

/// A code and a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    code: Code,
    message: String,
}

/// What every call that can fail returns.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error for a [`Source`](crate::Source) or a [`Provider`](crate::Provider) to return. Of a
    /// provider, the client sees the message: it must hold no secret.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// Why the call failed.
    pub fn code(&self) -> Code {
        self.code
    }

    /// What failed, and what to do about it.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Error {}

/// Calls `call` with a place for an error, and returns what it left there.
pub(crate) fn check(call: impl FnOnce(*mut *mut sys::cbt_error) -> sys::cbt_code) -> Result<()> {
    let mut error = ptr::null_mut();
    let code = call(&mut error);
    if code == 0 {
        return Ok(());
    }
    // SAFETY: the library set `error` to an error of ours, or left it NULL; its text ends with a
    // NUL and is copied before it is freed.
    let message = unsafe {
        let text = CStr::from_ptr(sys::cbt_error_message_borrowed(error))
            .to_string_lossy()
            .into_owned();
        sys::cbt_error_free(error);
        text
    };
    Err(Error {
        code: Code::of(code),
        message,
    })
}

/// What a callback returns to the library for `result`: its code, and the error in `*error`.
///
/// # Safety
/// `error` is what the library passed to the callback.
pub(crate) unsafe fn give(result: Result<()>, error: *mut *mut sys::cbt_error) -> sys::cbt_code {
    let Err(failure) = result else { return 0 };
    if !error.is_null() {
        let text = failure.message.as_bytes();
        // SAFETY: the text is copied; *error is the library's to free.
        unsafe {
            *error = sys::cbt_error_new(
                failure.code as i32,
                text.as_ptr().cast::<c_char>(),
                text.len() as u64,
            );
        }
    }
    failure.code as i32
}

/// Runs what a user wrote inside of a callback: a panic must not cross the border, and is INTERNAL.
pub(crate) fn guarded<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(payload) => {
            let error = Error::new(
                Code::Internal,
                format!("{what} panicked: {}", text_of(&*payload)),
            );
            forget_quietly(payload);
            Err(error)
        }
    }
}

/// Drops a value of a user in a callback that returns nothing.
pub(crate) fn forget_quietly<T>(value: T) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            // A payload whose own drop panics is left.
            std::mem::forget(again);
        }
    }
}

fn text_of(payload: &(dyn Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
