package cbt

// #include "shim.h"
import "C"

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"runtime/cgo"
	"sync"
	"unsafe"

	"google.golang.org/grpc/codes"
)

// Provider is what a plugin implements: what each pair of snapshots differs in.
type Provider interface {
	// Open opens the source of one stream. It may be called by several goroutines at once, and may
	// block. The client sees the error's code and message, which must hold no secrets:
	// InvalidArgument for snapshots of different volumes, NotFound, FailedPrecondition without change
	// tracking, Unavailable for a snapshot that is not ready, Unimplemented. Other errors than those
	// of this package, of gRPC and of context are Unknown.
	Open(ctx context.Context, request *Request) (*Answer, error)
}

// ProviderFunc is a Provider of one function.
type ProviderFunc func(ctx context.Context, request *Request) (*Answer, error)

// Open calls f.
func (f ProviderFunc) Open(ctx context.Context, request *Request) (*Answer, error) {
	return f(ctx, request)
}

// Request is what a client asks for.
type Request struct {
	// The id of the base snapshot; empty: what is allocated in the target.
	Base string
	// The id of the target snapshot, never empty.
	Target string

	mutex  sync.Mutex
	handle *C.cbt_request
}

// Secret is the value of a secret of the request, which must reach no log and no message. The
// library wipes its copy after Provider.Open; there are no secrets afterwards.
func (r *Request) Secret(key string) (value string, ok bool) {
	name, err := newText(key)
	if err != nil {
		return "", false
	}
	defer name.free()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.handle == nil {
		return "", false
	}
	var size C.uint64_t
	found := C.cbt_request_secret_borrowed(r.handle, name.c, &size)
	if found == nil {
		return "", false
	}
	return C.GoStringN(found, C.int(size)), true
}

// Answer is what Provider.Open returns.
type Answer struct {
	// The extents, from 0 on; the stream seeks. Its capacity is the size of the target snapshot. The
	// answer consumes the cursor, also when Open returns an error with it.
	Cursor *Cursor
	// Report blocks of this size (FIXED_LENGTH) instead of extents; 0: extents.
	BlockSize uint64
	// Any text that differs whenever the answer may differ, and is the same after a restart: a client
	// that resumes notices that a snapshot was replaced in between. Empty: only the ids identify the
	// data.
	Version string
	// The data may change while Version stays the same, as with block devices; such streams are not
	// proven.
	MayChange bool
}

// openSource asks the provider, in a callback.
func openSource(ctx context.Context, provider Provider, asked *C.cbt_request, out *C.cbt_answer) error {
	request := &Request{handle: asked}
	defer func() {
		request.mutex.Lock()
		request.handle = nil
		request.mutex.Unlock()
	}()
	var size C.uint64_t
	if base := C.cbt_request_base_borrowed(asked, &size); base != nil {
		request.Base = C.GoStringN(base, C.int(size))
	}
	target := C.cbt_request_target_borrowed(asked, &size)
	request.Target = C.GoStringN(target, C.int(size))
	answer, err := provider.Open(ctx, request)
	if err != nil {
		if answer != nil && answer.Cursor != nil {
			answer.Cursor.Close()
		}
		return err
	}
	if answer == nil || answer.Cursor == nil {
		return &Error{codes.Internal, "the provider returned neither a cursor nor an error"}
	}
	cursor, err := answer.Cursor.take()
	if err != nil {
		return &Error{codes.Internal, "the provider returned a cursor that can't be used: " + err.Error()}
	}
	var e *C.cbt_error
	code := C.cbt_answer_set_cursor(out, cursor, &e)
	if err := failed(code, e); err != nil {
		return err
	}
	if answer.BlockSize != 0 {
		code := C.cbt_answer_set_blocks(out, C.uint64_t(answer.BlockSize), &e)
		if err := failed(code, e); err != nil {
			return err
		}
	}
	if answer.Version != "" || answer.MayChange {
		var mayChange C.int32_t
		if answer.MayChange {
			mayChange = 1
		}
		version := answer.Version
		code := C.cbt_answer_set_version(out, (*C.char)(unsafe.Pointer(unsafe.StringData(version))),
			C.uint64_t(len(version)), mayChange, &e)
		return failed(code, e)
	}
	return nil
}

// ServiceOptions are those of a service; the zero value is the default.
type ServiceOptions struct {
	// For csi.v1.Identity: a domain name of at most 63 characters, and a version (empty: the
	// library's). Without a name the plugin answers Identity itself, and must list the capability
	// SNAPSHOT_METADATA_SERVICE.
	PluginName    string
	VendorVersion string
	// The most bytes of one message, 4 KiB to 1 MiB - 1; 0: 128 KiB.
	MessageBytes uint64
	// How extents are reshaped. Blocks of BlockSize bytes (or the provider's) instead of extents; 0:
	// as the provider says. Extents are rounded outward to multiples of Alignment, joined over gaps of
	// at most CoalesceGap, cut at MaxExtent bytes; 0: not at all.
	Type        MetadataType
	BlockSize   uint64
	Alignment   uint64
	CoalesceGap uint64
	MaxExtent   uint64
}

// MetadataType says how a stream reports ranges.
type MetadataType int32

const (
	FixedLength    MetadataType = C.CBT_FIXED_LENGTH
	VariableLength MetadataType = C.CBT_VARIABLE_LENGTH
)

// Service is csi.v1.SnapshotMetadata over a Provider, for any gRPC library: it checks requests, cuts
// messages, resumes, answers empty volumes, states version and proof, and gives each error its code.
// For google.golang.org/grpc there is RegisterSnapshotMetadata. Any number of goroutines may use it.
type Service struct {
	mutex   sync.Mutex // held while handle is used
	handle  *C.cbt_service
	cleanup runtime.Cleanup
}

// NewService makes a service. If the provider is an io.Closer, it is closed when the service and all
// its streams are.
func NewService(provider Provider, options ServiceOptions) (*Service, error) {
	if provider == nil {
		return nil, &Error{codes.InvalidArgument, "the provider is nil"}
	}
	name, err := newText(options.PluginName)
	if err != nil {
		return nil, err
	}
	defer name.free()
	version, err := newText(options.VendorVersion)
	if err != nil {
		return nil, err
	}
	defer version.free()
	o := C.cbt_service_options{struct_size: C.sizeof_cbt_service_options, plugin_name: name.orNull(),
		vendor_version: version.orNull(), message_bytes: C.uint64_t(options.MessageBytes), _type: C.int32_t(options.Type),
		block_size: C.uint64_t(options.BlockSize), alignment: C.uint64_t(options.Alignment),
		coalesce_gap: C.uint64_t(options.CoalesceGap), max_extent: C.uint64_t(options.MaxExtent)}
	handle := cgo.NewHandle(provider)
	s := &Service{}
	var e *C.cbt_error
	code := C.cbt_go_service(C.uintptr_t(handle), &o, &s.handle, &e)
	if err := failed(code, e); err != nil {
		handle.Delete()
		return nil, err
	}
	s.cleanup = watch(s, "Service")
	return s, nil
}

// Methods are those to register, such as "/csi.v1.SnapshotMetadata/GetMetadataDelta". Those of
// SnapshotMetadata are server-streaming, those of Identity unary (a stream of one message).
func (s *Service) Methods() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var names []string
	for s.handle != nil {
		name := C.cbt_service_method_borrowed(s.handle, C.uint64_t(len(names)))
		if name == nil {
			break
		}
		names = append(names, C.GoString(name))
	}
	return names
}

// Close frees the service. Streams that are open continue.
func (s *Service) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.handle != nil {
		C.cbt_service_free(s.handle)
		s.handle = nil
		s.cleanup.Stop()
	}
	return nil
}

// Metadata is an entry of a call's metadata.
type Metadata struct {
	Key   string
	Value string
}

// Message is one response message, encoded.
type Message struct {
	Data          []byte
	Tuples        uint64
	ReportedBytes uint64 // of the volume
}

// Stream is one call. Calls on it must not overlap; Close waits for one that runs.
type Stream struct {
	ctx     context.Context
	mutex   sync.Mutex
	handle  *C.cbt_stream
	running cgo.Handle // the context, for the provider
	message C.cbt_go_message
	ended   bool
	cleanup runtime.Cleanup

	// Guards a stop by the context against the end of the stream.
	stopping sync.Mutex
	unwatch  func() bool
}

// Open decodes and checks the request message of a call, and begins to answer it. The provider is
// called by the first Next. Its error, and those of Next, are to end the call with. The end of ctx
// makes the stream fail soon, also while the provider works.
func (s *Service) Open(ctx context.Context, method string, request []byte) (*Stream, error) {
	name, err := newText(method)
	if err != nil {
		return nil, err
	}
	defer name.free()
	options := C.cbt_stream_options{struct_size: C.sizeof_cbt_stream_options}
	if deadline, ok := ctx.Deadline(); ok {
		options.deadline_ns = C.int64_t(deadline.UnixNano())
	}
	st := &Stream{ctx: ctx}
	s.mutex.Lock()
	if s.handle == nil {
		s.mutex.Unlock()
		return nil, refused("the service is closed")
	}
	var e *C.cbt_error
	code := C.cbt_stream_open(s.handle, name.c, unsafe.Pointer(unsafe.SliceData(request)), C.uint64_t(len(request)),
		&options, &st.handle, &e)
	s.mutex.Unlock()
	if err := failed(code, e); err != nil {
		return nil, err
	}
	st.running = cgo.NewHandle(ctx)
	st.cleanup = watch(st, "Stream")
	st.unwatch = context.AfterFunc(ctx, st.stop)
	return st, nil
}

func (s *Stream) stop() {
	s.stopping.Lock()
	defer s.stopping.Unlock()
	if s.handle != nil {
		C.cbt_stream_cancel(s.handle)
	}
}

// Close frees the stream. It may be called again.
func (s *Stream) Close() error {
	s.unwatch()
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.stopping.Lock()
	defer s.stopping.Unlock()
	if s.handle != nil {
		C.cbt_stream_free(s.handle)
		s.handle = nil
		s.running.Delete()
		s.cleanup.Stop()
	}
	return nil
}

func (s *Stream) lock() error {
	if !s.mutex.TryLock() {
		return refused("another call on the stream runs")
	}
	if s.handle == nil {
		s.mutex.Unlock()
		return refused("the stream is closed")
	}
	return nil
}

// bytes are those of the last message, in C's memory.
func (s *Stream) bytes() []byte {
	return unsafe.Slice((*byte)(s.message.data), s.message.size)
}

// next makes the next message, in s.message.
func (s *Stream) next() error {
	if s.ended {
		return io.EOF
	}
	for {
		s.message = C.cbt_go_message{}
		C.cbt_go_stream_next(s.handle, C.uintptr_t(s.running), &s.message)
		if s.message.code != C.CBT_OK {
			// The context says better why a stream was stopped.
			if err := contextError(s.ctx); err != nil && codes.Code(s.message.code) == codes.Canceled {
				C.cbt_error_free(s.message.error)
				return err
			}
			return failed(s.message.code, s.message.error)
		}
		switch s.message.state {
		case C.CBT_STREAM_MESSAGE:
			return nil
		case C.CBT_STREAM_END:
			s.ended = true
			return io.EOF
		}
	}
}

// Next makes the next message, and returns io.EOF when everything was sent: the call ends with OK
// then, and with any other error otherwise.
func (s *Stream) Next() (Message, error) {
	if err := s.lock(); err != nil {
		return Message{}, err
	}
	defer s.mutex.Unlock()
	if err := s.next(); err != nil {
		return Message{}, err
	}
	return Message{bytes.Clone(s.bytes()), uint64(s.message.tuples),
		uint64(s.message.reported_bytes)}, nil
}

// Header is the initial metadata, known once Next has returned a message.
func (s *Stream) Header() ([]Metadata, error) { return s.metadata(C.CBT_INITIAL) }

// Trailer is the trailing metadata, known once Next has returned io.EOF.
func (s *Stream) Trailer() ([]Metadata, error) { return s.metadata(C.CBT_TRAILING) }

func (s *Stream) metadata(which C.int32_t) ([]Metadata, error) {
	if err := s.lock(); err != nil {
		return nil, err
	}
	defer s.mutex.Unlock()
	var entries *C.cbt_metadata
	var count C.uint64_t
	var e *C.cbt_error
	code := C.cbt_stream_metadata_borrowed(s.handle, which, &entries, &count, &e)
	if err := failed(code, e); err != nil {
		return nil, err
	}
	var found []Metadata
	for _, entry := range unsafe.Slice(entries, count) {
		found = append(found, Metadata{C.GoString(entry.key), C.GoString(entry.value)})
	}
	return found, nil
}
