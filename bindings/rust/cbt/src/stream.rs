use std::{
    ffi::CStr,
    fmt, mem,
    os::raw::c_void,
    ptr,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use cbt_sys as sys;

use crate::{
    bytes::Bytes,
    cursor::Cursor,
    error::{check, forget_quietly, give, guarded, Code, Error, Result},
    map::text,
    wire::Style,
};

/// What a plugin implements: snapshots to cursors. Called from any thread, concurrently; may block.
pub trait Provider: Send + Sync + 'static {
    /// Opens the source of one stream. The client sees an error's code and message, which must hold
    /// no secret: INVALID_ARGUMENT for snapshots of different volumes, NOT_FOUND,
    /// FAILED_PRECONDITION without change tracking, UNAVAILABLE for a snapshot that is not ready.
    /// A panic is INTERNAL.
    fn open(&self, request: &Request<'_>) -> Result<Answer>;
}

impl<F: Fn(&Request<'_>) -> Result<Answer> + Send + Sync + 'static> Provider for F {
    fn open(&self, request: &Request<'_>) -> Result<Answer> {
        self(request)
    }
}

/// What a client asks for. It lives as long as the call of the provider.
///
/// ```compile_fail
/// # use cbt::{Request, Result, Answer};
/// fn open<'r>(request: &Request<'r>, kept: &mut Option<&'static str>) -> Result<Answer> {
///     *kept = Some(request.target()); // outlives the request
///     todo!()
/// }
/// ```
pub struct Request<'r> {
    raw: *const sys::cbt_request,
    base: Option<&'r str>,
    target: &'r str,
}

impl<'r> Request<'r> {
    /// # Safety
    /// `raw` is valid for 'r.
    unsafe fn of(raw: *const sys::cbt_request) -> Result<Self> {
        let id = |data: *const std::os::raw::c_char, size: u64| {
            if data.is_null() {
                return Ok(None);
            }
            // SAFETY: `size` bytes, valid during the callback.
            let bytes = unsafe { slice::from_raw_parts(data.cast::<u8>(), size as usize) };
            std::str::from_utf8(bytes)
                .map(Some)
                .map_err(|_| Error::new(Code::InvalidArgument, "an id is not UTF-8"))
        };
        let (mut base_size, mut target_size) = (0, 0);
        // SAFETY: valid during the callback.
        let (base, target) = unsafe {
            (
                sys::cbt_request_base_borrowed(raw, &mut base_size),
                sys::cbt_request_target_borrowed(raw, &mut target_size),
            )
        };
        Ok(Self {
            raw,
            base: id(base, base_size)?,
            target: id(target, target_size)?.unwrap_or(""),
        })
    }

    /// The base snapshot; none: the request asks what is allocated in the target.
    pub fn base(&self) -> Option<&'r str> {
        self.base
    }

    /// The target snapshot. Not empty.
    pub fn target(&self) -> &'r str {
        self.target
    }

    /// The value of a secret of the request, which must reach no log and no message. It is wiped
    /// after the call.
    pub fn secret(&self, key: &str) -> Option<&[u8]> {
        let key = text(key).ok()?;
        let mut size = 0;
        // SAFETY: valid during the callback, as the request is; the key lives during the call.
        unsafe {
            let data = sys::cbt_request_secret_borrowed(self.raw, key.as_ptr(), &mut size);
            if data.is_null() {
                return None;
            }
            Some(slice::from_raw_parts(data.cast(), size as usize))
        }
    }

    /// Whether the stream was cancelled. For providers that take long.
    pub fn cancelled(&self) -> bool {
        // SAFETY: valid during the callback.
        unsafe { sys::cbt_request_cancelled(self.raw) != 0 }
    }
}

/// Without its secrets.
impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("base", &self.base)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// What a provider answers.
#[derive(Debug)]
#[must_use = "return it"]
pub struct Answer {
    cursor: Cursor<'static>,
    blocks: Option<u64>,
    version: Option<(String, bool)>,
}

impl Answer {
    /// The extents, from 0 on: the stream seeks. The cursor's capacity is the size of the target.
    pub fn new(cursor: Cursor<'static>) -> Self {
        Self {
            cursor,
            blocks: None,
            version: None,
        }
    }

    /// Report blocks of `block_size` bytes instead of extents.
    pub fn blocks(mut self, block_size: u64) -> Self {
        self.blocks = Some(block_size);
        self
    }

    /// Any text that differs whenever the answer may differ, and is the same after a restart: a
    /// client that resumes notices that a snapshot was replaced in between.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some((version.into(), false));
        self
    }

    /// The same for data that may change while the text stays the same, as that of block devices.
    /// Such streams are not proven.
    pub fn version_of_place(mut self, version: impl Into<String>) -> Self {
        self.version = Some((version.into(), true));
        self
    }

    /// # Safety
    /// `answer` is the one of the callback that runs.
    unsafe fn give(self, answer: *mut sys::cbt_answer) -> Result<()> {
        // SAFETY: as above; the cursor is ours and given away, the text is copied.
        unsafe {
            check(|error| sys::cbt_answer_set_cursor(answer, self.cursor.into_raw(), error))?;
            if let Some(size) = self.blocks {
                check(|error| sys::cbt_answer_set_blocks(answer, size, error))?;
            }
            if let Some((version, may_change)) = self.version {
                check(|error| {
                    sys::cbt_answer_set_version(
                        answer,
                        version.as_ptr().cast(),
                        version.len() as u64,
                        may_change.into(),
                        error,
                    )
                })?;
            }
        }
        Ok(())
    }
}

unsafe extern "C" fn open<P: Provider>(
    user: *mut c_void,
    request: *const sys::cbt_request,
    answer: *mut sys::cbt_answer,
    error: *mut *mut sys::cbt_error,
) -> sys::cbt_code {
    // SAFETY: `user` is the provider that Service::new() boxed, which is Sync; the others are valid
    // during the callback.
    unsafe {
        let provider = &*user.cast::<P>();
        let result = Request::of(request)
            .and_then(|request| guarded("the provider", || provider.open(&request)))
            .and_then(|made| made.give(answer));
        give(result, error)
    }
}

unsafe extern "C" fn release<P>(user: *mut c_void) {
    // SAFETY: from Box::into_raw() of Service::new(); called once.
    forget_quietly(unsafe { Box::from_raw(user.cast::<P>()) });
}

/// Options of a service; the default leaves everything to the library.
#[derive(Clone, Debug, Default)]
pub struct ServiceOptions {
    /// For `csi.v1.Identity`. None: the plugin answers Identity itself, and must list the capability
    /// SNAPSHOT_METADATA_SERVICE.
    pub plugin_name: Option<String>,
    /// The plugin's version.
    pub vendor_version: Option<String>,
    /// The most bytes of one message; 0: 128 KiB.
    pub message_bytes: u64,
    /// Forces a style.
    pub style: Option<Style>,
    /// Of blocks; 0: the provider's.
    pub block_size: u64,
    /// Extents are rounded outward to multiples of it; 0: not at all.
    pub alignment: u64,
    /// Extents are joined over gaps of at most this.
    pub coalesce_gap: u64,
    /// Extents are cut at this; 0: not at all.
    pub max_extent: u64,
}

/// `csi.v1.SnapshotMetadata` for a gRPC library: request bytes in, response bytes out. Any number
/// of threads may use one.
#[derive(Debug)]
pub struct Service {
    raw: NonNull<sys::cbt_service>,
}

// SAFETY: any number of threads may use one service; a Provider is Send and Sync.
unsafe impl Send for Service {}
// SAFETY: as above.
unsafe impl Sync for Service {}

impl Service {
    /// A service of a provider, which is dropped when the service and all its streams are.
    pub fn new<P: Provider>(provider: P, options: &ServiceOptions) -> Result<Self> {
        let optional = |value: &Option<String>| value.as_deref().map(text).transpose();
        let (name, version) = (
            optional(&options.plugin_name)?,
            optional(&options.vendor_version)?,
        );
        let raw_options = sys::cbt_service_options {
            struct_size: mem::size_of::<sys::cbt_service_options>() as u64,
            plugin_name: name.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            vendor_version: version.as_ref().map_or(ptr::null(), |text| text.as_ptr()),
            message_bytes: options.message_bytes,
            type_: match options.style {
                None => 0,
                Some(Style::FixedLength) => 1,
                Some(Style::VariableLength) => 2,
            },
            reserved: 0,
            block_size: options.block_size,
            alignment: options.alignment,
            coalesce_gap: options.coalesce_gap,
            max_extent: options.max_extent,
        };
        let user = Box::into_raw(Box::new(provider));
        let callbacks = sys::cbt_provider {
            struct_size: mem::size_of::<sys::cbt_provider>() as u64,
            user: user.cast(),
            open: Some(open::<P>),
            release: Some(release::<P>),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: everything lives during the call; the callbacks get the `user` that is theirs.
        let made = check(|error| unsafe {
            sys::cbt_service_new(&callbacks, &raw_options, &mut raw, error)
        });
        if let Err(failure) = made {
            // SAFETY: release() is not called after a failure.
            drop(unsafe { Box::from_raw(user) });
            return Err(failure);
        }
        Ok(Self {
            raw: NonNull::new(raw).expect("a handle after success"),
        })
    }

    /// The methods to register with the gRPC library, such as
    /// `/csi.v1.SnapshotMetadata/GetMetadataDelta`.
    pub fn methods(&self) -> impl Iterator<Item = &'static str> + '_ {
        (0..).map_while(|index| {
            // SAFETY: the service lives; the text is static.
            unsafe {
                let name = sys::cbt_service_method_borrowed(self.raw.as_ptr(), index);
                if name.is_null() {
                    return None;
                }
                CStr::from_ptr(name).to_str().ok()
            }
        })
    }

    /// Opens a call of a method for the request message `request`, as it came. The provider is
    /// called by the first [`Stream::next`]. An error ends the call with its code and message.
    pub fn open(&self, method: &str, request: &[u8], options: &StreamOptions) -> Result<Stream> {
        let method = text(method)?;
        let since_1970 = |time: SystemTime| {
            // A deadline that has passed is not "never".
            let time = time
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap_or_default();
            i64::try_from(time.as_nanos()).unwrap_or(i64::MAX).max(1)
        };
        let raw_options = sys::cbt_stream_options {
            struct_size: mem::size_of::<sys::cbt_stream_options>() as u64,
            deadline_ns: options.deadline.map_or(0, since_1970),
            slice_us: options
                .slice
                .map_or(0, |time| (time.as_micros() as u64).max(1)),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: everything lives during the call, and the stream keeps the service.
        check(|error| unsafe {
            sys::cbt_stream_open(
                self.raw.as_ptr(),
                method.as_ptr(),
                request.as_ptr().cast(),
                request.len() as u64,
                &raw_options,
                &mut raw,
                error,
            )
        })?;
        let raw = NonNull::new(raw).expect("a handle after success");
        Ok(Stream {
            raw,
            living: Arc::new(Mutex::new(Living(Some(raw)))),
        })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // SAFETY: ours, and not used after this; streams that are open continue.
        unsafe { sys::cbt_service_free(self.raw.as_ptr()) }
    }
}

/// Options of one call.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamOptions {
    /// When the client stops waiting.
    pub deadline: Option<SystemTime>,
    /// The most time that [`Stream::next`] works before it returns [`Event::Yield`]: for event
    /// loops.
    pub slice: Option<Duration>,
}

/// One call. Everything runs in the thread that calls; one at a time.
#[derive(Debug)]
#[must_use = "a stream that is not read to its end has no answer"]
pub struct Stream {
    raw: NonNull<sys::cbt_stream>,
    living: Arc<Mutex<Living>>,
}

// SAFETY: a handle may move between threads; cursors of a provider are Send.
unsafe impl Send for Stream {}

/// The stream while it is not freed.
#[derive(Debug)]
struct Living(Option<NonNull<sys::cbt_stream>>);

// SAFETY: only used to cancel, which any thread may do.
unsafe impl Send for Living {}

/// Cancels a stream from any thread, also after the stream was dropped.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Mutex<Living>>);

impl Canceller {
    /// The stream fails with CANCELLED, soon also in a call that runs.
    pub fn cancel(&self) {
        if let Some(raw) = self.0.lock().unwrap_or_else(PoisonError::into_inner).0 {
            // SAFETY: not freed while the lock is held; may overlap other calls.
            unsafe { sys::cbt_stream_cancel(raw.as_ptr()) }
        }
    }
}

/// What [`Stream::next`] returns.
#[derive(Clone, Copy, Debug)]
pub enum Event<'s> {
    /// Send it.
    Message(Message<'s>),
    /// Nothing yet: call again.
    Yield,
    /// Everything was sent: end the call with OK and the trailing metadata.
    End,
}

/// A response message, encoded.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Message<'s> {
    pub bytes: &'s [u8],
    pub tuples: u64,
    /// Of the volume, in this message.
    pub reported_bytes: u64,
}

/// Keys and values.
pub type Metadata = Vec<(String, String)>;

impl Stream {
    /// Makes the next message. An error ends the call; tuples that were found before it were
    /// returned.
    #[allow(clippy::should_implement_trait)] // it lends
    pub fn next(&mut self) -> Result<Event<'_>> {
        // SAFETY: plain numbers and pointers; zeros are values of all.
        let mut raw: sys::cbt_message = unsafe { mem::zeroed() };
        // SAFETY: &mut: no other call runs, but for cancel().
        check(|error| unsafe { sys::cbt_stream_next(self.raw.as_ptr(), &mut raw, error) })?;
        Ok(match raw.state {
            1 => Event::Message(Message {
                bytes: if raw.size == 0 {
                    &[]
                } else {
                    // SAFETY: valid until the next call, for which the borrow of `self` has to end.
                    unsafe { slice::from_raw_parts(raw.data, raw.size as usize) }
                },
                tuples: raw.tuples,
                reported_bytes: raw.reported_bytes,
            }),
            2 => Event::Yield,
            3 => Event::End,
            // A state of a later version is never an end.
            state => {
                return Err(Error::new(
                    Code::Internal,
                    format!("unknown state {state} of a stream"),
                ))
            }
        })
    }

    /// The bytes of the last message, without a copy, for libraries that send later.
    pub fn keep(&mut self) -> Result<Bytes<'static>> {
        let mut raw = ptr::null_mut();
        // SAFETY: &mut: no other call runs.
        check(|error| unsafe { sys::cbt_stream_keep(self.raw.as_ptr(), &mut raw, error) })?;
        Ok(Bytes::of(raw))
    }

    /// Known once [`next`](Self::next) has returned a message; send it before that.
    pub fn initial_metadata(&mut self) -> Result<Metadata> {
        self.metadata(0)
    }

    /// Known once [`next`](Self::next) has returned the end; send it with the status.
    pub fn trailing_metadata(&mut self) -> Result<Metadata> {
        self.metadata(1)
    }

    fn metadata(&mut self, which: i32) -> Result<Metadata> {
        let (mut entries, mut count) = (ptr::null(), 0);
        // SAFETY: &mut: no other call runs; the entries are copied.
        unsafe {
            check(|error| {
                sys::cbt_stream_metadata_borrowed(
                    self.raw.as_ptr(),
                    which,
                    &mut entries,
                    &mut count,
                    error,
                )
            })?;
            let text = |data| CStr::from_ptr(data).to_string_lossy().into_owned();
            Ok((0..count as usize)
                .map(|index| {
                    let entry: &sys::cbt_metadata = &*entries.add(index);
                    (text(entry.key), text(entry.value))
                })
                .collect())
        }
    }

    /// Cancels this stream, from any thread.
    pub fn canceller(&self) -> Canceller {
        Canceller(self.living.clone())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.living.lock().unwrap_or_else(PoisonError::into_inner).0 = None;
        // SAFETY: ours, and not used after this; no Canceller has it any more.
        unsafe { sys::cbt_stream_free(self.raw.as_ptr()) }
    }
}
