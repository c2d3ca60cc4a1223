// Package client reads csi.v1.SnapshotMetadata and the Kubernetes SnapshotMetadata API: every message
// is checked, a stream that breaks is resumed at the byte where it broke, the version of the server's
// data is compared, and the proof of completeness is verified. It is pure Go: neither cgo nor libcbt.
package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Range is what changed (or is allocated), in bytes of the volume.
type Range struct {
	Offset uint64
	Length uint64
}

// NoMessage says what an answer means that the server ends with OK without a message: it has nothing
// to report, and does not say how large the volume is. The reference driver of CSI ends so.
type NoMessage int

const (
	// NoMessageNeedsCapacity takes it for an empty answer if Request.Capacity is set, and otherwise
	// fails with DataLoss.
	NoMessageNeedsCapacity NoMessage = iota
	// NoMessageAccepted takes it for an empty answer, perhaps of unknown capacity.
	NoMessageAccepted
	// NoMessageRefused fails with DataLoss.
	NoMessageRefused
)

// Request is what to ask for.
type Request struct {
	// The target snapshot: its CSI handle, or its name in Namespace.
	Snapshot string
	// The CSI handle of the base snapshot; empty: what is allocated in the target.
	Base string
	// Namespace of the VolumeSnapshot. If it is set, the Kubernetes API is spoken, otherwise CSI's.
	Namespace string
	// Makes the security token of the Kubernetes API, for each call to the server: a token may expire
	// before the stream ends. Its error counts as the server's.
	Token func(ctx context.Context) (string, error)
	// Passed on to a CSI plugin.
	Secrets map[string]string

	// Where to begin, in bytes: 0, or Result.ResumeOffset of a List that failed.
	StartingOffset uint64
	// Result.SourceVersion of the List that this one continues: other data is Aborted, data that may
	// change unseen FailedPrecondition. Empty: not compared.
	SourceVersion string
	// The most tuples of a message; 0: the server's choice.
	MaxResults int32
	NoMessage  NoMessage
	// The size of the volume as known from elsewhere, for an answer without a message; 0: unknown.
	Capacity uint64
	// Fail with FailedPrecondition if nothing proves that the answer is complete and of one state.
	RequireProof bool
	// How long to try again without progress: after Unavailable, and once the stream has begun also
	// when the server cancels it, or ends a stream that brought tuples because of its own time limit.
	// 0: five minutes; negative: the first failure is final.
	RetryFor time.Duration
	// Fail with DeadlineExceeded if the server sends nothing for so long although the client waits; 0:
	// no limit. A server may be silent while it searches.
	StallTimeout time.Duration
	// Called before each further attempt; may be nil.
	OnResume func(offset uint64, reason error)
}

// Completeness is what is known about the end of an answer.
type Completeness int

const (
	UnderWay        Completeness = iota // not finished: List has failed
	Ended                               // the server ended it with OK, but sent no proof
	ProvenFromRelay                     // proven, but a relay's server sent no proof
	ProvenForPlace                      // proven, but its parts may be of two states of the data
	Proven                              // what was received is what the source reported
)

func (c Completeness) String() string {
	return [...]string{"under way", "ended", "proven from the relay on", "proven for its place", "proven"}[c]
}

// Result is what is known about an answer.
type Result struct {
	Completeness Completeness
	// The size of the volume in bytes; 0: unknown (NoMessageAccepted). Nothing may be cut to it then.
	Capacity uint64
	// Ranges have one size, but for the last one of the volume.
	FixedLength   bool
	Ranges        uint64
	ReportedBytes uint64
	Resumes       int
	// The state of the server's data; empty if it reports none.
	SourceVersion string
	// Where to continue after a failure: every range below was recorded.
	ResumeOffset uint64
}

const (
	csiService        = "/csi.v1.SnapshotMetadata/"
	kubernetesService = "/snapshotmetadata.SnapshotMetadata/"
	defaultRetry      = 5 * time.Minute
	firstBackoff      = 100 * time.Millisecond
	lastBackoff       = 5 * time.Second
	placePrefix       = "place:"
)

// final is an error that no further attempt can mend.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

func broken(format string, arguments ...any) error {
	return final{status.Errorf(codes.DataLoss, "metadata stream: "+format, arguments...)}
}

// List asks the server behind `conn` and calls `record` with what it answers, in ascending order,
// without overlap, none twice and cut at the capacity. The slice is reused. The answer is complete
// when List returns without an error, and for no other reason: otherwise discard what was recorded,
// or continue at Result.ResumeOffset. An error of `record` ends the call and is returned. Errors of
// the server keep their code; a server that breaks the contract is DataLoss, one whose data changed
// before the stream was resumed Aborted.
func List(ctx context.Context, conn grpc.ClientConnInterface, request Request, record func([]Range) error, options ...grpc.CallOption) (Result, error) {
	l := &list{conn: conn, request: request, record: record, floor: request.StartingOffset,
		options: append([]grpc.CallOption{grpc.ForceCodecV2(codec{})}, options...)}
	l.result.ResumeOffset = l.floor
	l.result.SourceVersion = request.SourceVersion
	if request.Snapshot == "" || request.MaxResults < 0 || request.StartingOffset > math.MaxInt64 {
		return l.result, status.Error(codes.InvalidArgument, "client: a list needs a snapshot, max_results >= 0 and an offset below 2^63")
	}
	retryFor := request.RetryFor
	if retryFor == 0 {
		retryFor = defaultRetry
	}
	var since time.Time
	backoff := firstBackoff
	for {
		before := l.result.Ranges
		err := l.attempt(ctx)
		if err == nil {
			return l.result, nil
		}
		l.result.Completeness = UnderWay
		var stop final
		if errors.As(err, &stop) {
			return l.result, stop.error
		}
		if ctx.Err() != nil {
			return l.result, status.FromContextError(ctx.Err()).Err()
		}
		now := time.Now()
		if l.result.Ranges != before || since.IsZero() {
			since, backoff = now, firstBackoff
		}
		if !l.mayTryAgain(err) || now.Sub(since) >= retryFor {
			return l.result, err
		}
		wait := min(backoff/2+rand.N(backoff/2), retryFor-now.Sub(since))
		backoff = min(2*backoff, lastBackoff)
		select {
		case <-ctx.Done():
			return l.result, status.FromContextError(ctx.Err()).Err()
		case <-time.After(wait):
		}
		if request.OnResume != nil {
			request.OnResume(l.floor, err)
		}
		if reset, ok := conn.(interface{ ResetConnectBackoff() }); ok {
			reset.ResetConnectBackoff() // gRPC would wait for up to two minutes
		}
		if l.begun {
			l.result.Resumes++
		}
	}
}

// list is a List at work.
type list struct {
	conn    grpc.ClientConnInterface
	request Request
	record  func([]Range) error
	options []grpc.CallOption
	result  Result

	begun bool // a message arrived: type and capacity are known
	// Where the next call begins.
	floor         uint64
	floorIsEnd    bool // of a tuple
	continued     bool // from a tuple of an earlier call, or of an earlier List
	attemptRanges uint64
	ranges        []Range
}

func (l *list) mayTryAgain(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable:
		return true
	case codes.Canceled:
		return l.begun
	case codes.DeadlineExceeded:
		return l.attemptRanges > 0
	}
	return false
}

// attempt makes one call and reads it to its end.
func (l *list) attempt(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := silence{limit: l.request.StallTimeout, cancel: cancel}
	err := l.read(ctx, &silence)
	// What the cancelled call fails with says less.
	var stop final
	if err != nil && silence.over.Load() && !errors.As(err, &stop) {
		return final{status.Errorf(codes.DeadlineExceeded, "metadata stream: the server sent nothing for %v", silence.limit)}
	}
	return err
}

// silence ends a call whose server sends nothing.
type silence struct {
	limit  time.Duration // 0: none
	cancel context.CancelFunc
	over   atomic.Bool
}

// during runs what waits for the server.
func (s *silence) during(wait func() error) error {
	if s.limit > 0 {
		timer := time.AfterFunc(s.limit, func() {
			s.over.Store(true)
			s.cancel()
		})
		defer timer.Stop()
	}
	return wait()
}

// read makes the call of an attempt.
func (l *list) read(ctx context.Context, silence *silence) error {
	l.attemptRanges = 0
	var token string
	if l.request.Token != nil {
		var err error
		if token, err = l.request.Token(ctx); err != nil {
			return err
		}
	}
	stream, err := l.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, l.method(), l.options...)
	if err != nil {
		return err
	}
	message := l.encode(token)
	// An error of SendMsg is io.EOF: RecvMsg has the status.
	if err := stream.SendMsg(&message); err != nil && err != io.EOF {
		return err
	}
	stream.CloseSend()
	l.continued = l.continued || l.floorIsEnd || l.request.SourceVersion != ""
	check := checker{start: l.floor, most: l.request.MaxResults}
	for first := true; ; first = false {
		var data []byte
		err := silence.during(func() error { return stream.RecvMsg(&data) })
		if err == io.EOF {
			return l.end(ctx, stream, &check, first)
		}
		if err != nil {
			return err
		}
		if err := check.message(data); err != nil {
			return err
		}
		if first {
			if err := l.compareVersion(stream, nil); err != nil {
				return err
			}
			if l.begun && (check.capacity != l.result.Capacity || check.fixed != l.result.FixedLength) {
				return broken("resumed at %d with a different type or capacity", l.floor)
			}
			l.begun = true
			l.result.Capacity, l.result.FixedLength = check.capacity, check.fixed
		}
		if err := l.take(check.tuples); err != nil {
			return err
		}
	}
}

// take cuts the tuples of a message at the floor and at the capacity, and records them.
func (l *list) take(tuples []Range) error {
	if len(tuples) == 0 {
		return nil
	}
	l.ranges = append(l.ranges[:0], tuples...)
	ranges, first := l.ranges, l.ranges[0]
	if l.floorIsEnd && first.Offset < l.floor {
		switch {
		// A last block that reaches past the capacity does not end at it: servers may repeat it.
		case l.floor == l.result.Capacity && len(ranges) == 1:
			return nil
		case l.result.FixedLength:
			return broken("resumed at %d, the end of a block, but the next block is at %d", l.floor, first.Offset)
		}
		ranges[0] = Range{l.floor, first.Offset + first.Length - l.floor}
	}
	last := &ranges[len(ranges)-1]
	last.Length = min(last.Length, l.result.Capacity-last.Offset)
	if err := l.record(ranges); err != nil {
		return final{err}
	}
	l.floor, l.floorIsEnd = last.Offset+last.Length, true
	l.result.ResumeOffset = l.floor
	l.attemptRanges += uint64(len(ranges))
	l.result.Ranges += uint64(len(ranges))
	for _, each := range ranges {
		l.result.ReportedBytes += each.Length
	}
	return nil
}

// end judges the server's OK.
func (l *list) end(ctx context.Context, stream grpc.ClientStream, check *checker, noMessage bool) error {
	// The reference driver ends with OK what its deadline has cut.
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return final{status.Error(codes.DeadlineExceeded, "metadata stream: ended after the deadline")}
	}
	// Before the end of the call gRPC may still write it.
	trailer := stream.Trailer()
	if noMessage {
		if err := l.compareVersion(stream, trailer); err != nil {
			return err
		}
		if !l.begun {
			l.result.Capacity = l.request.Capacity
		}
		if l.request.NoMessage == NoMessageRefused {
			return broken("ended without a message")
		}
		if l.result.Capacity == 0 && l.request.NoMessage != NoMessageAccepted {
			return broken("ended without a message: the server reports nothing, and not how large the volume is; " +
				"state the volume's capacity")
		}
		if l.result.Capacity != 0 && l.floor > l.result.Capacity {
			return final{status.Errorf(codes.OutOfRange, "client: starting offset %d is greater than the capacity %d", l.floor, l.result.Capacity)}
		}
		check.capacity = l.result.Capacity
		check.fixed = l.result.FixedLength
	} else if len(trailer.Get("cbt-source-version")) > 0 && l.result.SourceVersion != "" {
		return broken("cbt-source-version is given twice")
	}
	verdict, err := check.proof(trailer, !noMessage || l.begun)
	if err != nil {
		return err
	}
	unknownParts := l.continued && l.result.SourceVersion == ""
	if verdict == Proven && (unknownParts || strings.HasPrefix(l.result.SourceVersion, placePrefix)) {
		verdict = ProvenForPlace
	}
	if l.request.RequireProof && verdict != Proven {
		return final{status.Errorf(codes.FailedPrecondition, "metadata stream: a proof is required, and this answer is %v", verdict)}
	}
	l.result.Completeness = verdict
	return nil
}

// compareVersion takes the version from the headers, and compares it with what it was. A call without
// a message may have all its metadata in the trailer.
func (l *list) compareVersion(stream grpc.ClientStream, trailer metadata.MD) error {
	header, err := stream.Header()
	if err != nil {
		return err
	}
	found := append(header.Get("cbt-source-version"), trailer.Get("cbt-source-version")...)
	if len(found) > 1 {
		return broken("cbt-source-version is given twice")
	}
	version := strings.Join(found, "")
	if l.result.SourceVersion != "" && version != l.result.SourceVersion {
		return final{status.Errorf(codes.Aborted, "metadata stream: the server's data changed before it resumed at %d: "+
			"discard what was received and start again from 0", l.floor)}
	}
	if l.request.SourceVersion != "" && strings.HasPrefix(version, placePrefix) {
		return final{status.Error(codes.FailedPrecondition, "metadata stream: the data may change while its version stays "+
			"the same, so that this answer can't continue another one: start again from 0")}
	}
	// A version that appears only now says nothing about the part before.
	if !l.continued {
		l.result.SourceVersion = version
	}
	return nil
}

func (l *list) method() string {
	service, method := csiService, "GetMetadataAllocated"
	if l.request.Namespace != "" {
		service = kubernetesService
	}
	if l.request.Base != "" {
		method = "GetMetadataDelta"
	}
	return service + method
}

// encode makes the request's message.
func (l *list) encode(token string) []byte {
	var message []byte
	var field protowire.Number
	text := func(value string) {
		field++
		if value != "" {
			message = protowire.AppendString(protowire.AppendTag(message, field, protowire.BytesType), value)
		}
	}
	number := func(value uint64) {
		field++
		if value != 0 {
			message = protowire.AppendVarint(protowire.AppendTag(message, field, protowire.VarintType), value)
		}
	}
	if l.request.Namespace != "" {
		text(token)
		text(l.request.Namespace)
	}
	if l.request.Base != "" {
		text(l.request.Base)
	}
	text(l.request.Snapshot)
	number(l.floor)
	number(uint64(l.request.MaxResults))
	if l.request.Namespace == "" {
		field++
		for key, value := range l.request.Secrets {
			entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), key)
			entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), value)
			message = protowire.AppendBytes(protowire.AppendTag(message, field, protowire.BytesType), entry)
		}
	}
	return message
}

// codec passes messages as bytes.
type codec struct{}

func (codec) Marshal(v any) (mem.BufferSlice, error) {
	data, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("client: a message of type %T", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(*data)}, nil
}

func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (codec) Name() string { return "proto" }

// only is the value of a key of metadata; an error if it is given twice.
func only(md metadata.MD, key string) (value string, found bool, err error) {
	values := md.Get(key)
	if len(values) > 1 {
		return "", true, broken("%s is given twice", key)
	}
	return strings.Join(values, ""), len(values) == 1, nil
}
