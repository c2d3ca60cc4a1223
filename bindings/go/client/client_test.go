package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestAnAnswer(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		p := volume(fixed)
		conn := p.start(t)
		var found []Range
		result, err := List(context.Background(), conn, Request{Snapshot: "s", Base: "b", MaxResults: 7, RequireProof: true,
			Secrets: map[string]string{"user": "me"}}, collect(&found))
		if err != nil || !reflect.DeepEqual(found, p.wanted()) {
			t.Fatalf("%v: %v", found, err)
		}
		if result.Completeness != Proven || result.Capacity != p.capacity || result.FixedLength != fixed || result.Ranges != 25 ||
			result.SourceVersion != "v1" || result.ResumeOffset != p.capacity || result.Resumes != 0 {
			t.Errorf("%+v", result)
		}
		fields := p.fields[0]
		if p.methods[0] != "/csi.v1.SnapshotMetadata/GetMetadataDelta" || fields[1][0] != "b" || fields[2][0] != "s" ||
			fields[4][0] != "7" || fields[5][0] != "\x0a\x04user\x12\x02me" {
			t.Errorf("%v asked %v", p.methods, fields)
		}
	}
}

// The stream breaks at every message of every call, with every style: nothing is lost or repeated.
func TestResumesAtTheByte(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		for _, code := range []codes.Code{codes.Unavailable, codes.Canceled, codes.DeadlineExceeded} {
			p := volume(fixed)
			p.before = func(call, message int, start uint64) error {
				if message == call%3+1 && call < 20 {
					return status.Error(code, "planted")
				}
				return nil
			}
			var found []Range
			var offsets []uint64
			result, err := List(context.Background(), p.start(t), Request{Snapshot: "s",
				OnResume: func(offset uint64, reason error) { offsets = append(offsets, offset) }}, collect(&found))
			if err != nil || !reflect.DeepEqual(found, p.wanted()) {
				t.Fatalf("%v: %v after %v", found, err, offsets)
			}
			if result.Resumes == 0 || len(offsets) != result.Resumes || result.Completeness != Proven {
				t.Errorf("%+v after %v", result, offsets)
			}
		}
	}
}

// A server that begins a resumed answer of extents before the offset, as the contract allows.
func TestARangeThatBeginsBeforeTheResumedOffset(t *testing.T) {
	p := volume(false)
	p.tuples = []Range{{0, 8 * block}, {10 * block, block}}
	split := true
	p.change = func(call int, message []byte) []byte {
		if call == 0 && split {
			return encodeMessage(false, p.capacity, []Range{{0, 4 * block}})
		}
		return message
	}
	p.before = func(call, message int, _ uint64) error {
		if call == 0 && message == 1 {
			return status.Error(codes.Unavailable, "planted")
		}
		return nil
	}
	var found []Range
	_, err := List(context.Background(), p.start(t), Request{Snapshot: "s"}, collect(&found))
	if want := []Range{{0, 4 * block}, {4 * block, 4 * block}, {10 * block, block}}; err != nil || !reflect.DeepEqual(found, want) {
		t.Errorf("%v: %v", found, err)
	}
}

func TestDataThatChanges(t *testing.T) {
	for name, after := range map[string]string{"replaced": "v2", "no version any more": ""} {
		p := volume(false)
		p.before = func(call, message int, _ uint64) error {
			if call == 0 && message == 2 {
				p.mutex.Lock()
				p.version = after
				p.mutex.Unlock()
				return status.Error(codes.Unavailable, "planted")
			}
			return nil
		}
		result, err := List(context.Background(), p.start(t), Request{Snapshot: "s"}, collect(new([]Range)))
		if status.Code(err) != codes.Aborted || result.Completeness != UnderWay {
			t.Errorf("%s: %+v: %v", name, result, err)
		}
	}
	// Without any version the parts may be of two states.
	p := volume(false)
	p.version = ""
	p.before = func(call, message int, _ uint64) error {
		if call == 0 && message == 2 {
			return status.Error(codes.Unavailable, "planted")
		}
		return nil
	}
	conn := p.start(t)
	if result, err := List(context.Background(), conn, Request{Snapshot: "s"}, collect(new([]Range))); err != nil || result.Completeness != ProvenForPlace {
		t.Errorf("%+v: %v", result, err)
	}
	p.calls = 0
	if _, err := List(context.Background(), conn, Request{Snapshot: "s", RequireProof: true}, collect(new([]Range))); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

func TestContinuesInAnotherProcess(t *testing.T) {
	p := volume(true)
	conn := p.start(t)
	stop := errors.New("enough")
	var found []Range
	result, err := List(context.Background(), conn, Request{Snapshot: "s"}, func(ranges []Range) error {
		if len(found) >= 9 {
			return stop
		}
		found = append(found, ranges...)
		return nil
	})
	if err != stop || len(found) != 9 {
		t.Fatalf("%d ranges: %v", len(found), err)
	}
	request := Request{Snapshot: "s", StartingOffset: result.ResumeOffset, SourceVersion: result.SourceVersion}
	if result, err = List(context.Background(), conn, request, collect(&found)); err != nil || !reflect.DeepEqual(found, p.wanted()) {
		t.Errorf("%v: %v", found, err)
	}
	request.SourceVersion = "older"
	if _, err := List(context.Background(), conn, request, collect(&found)); status.Code(err) != codes.Aborted {
		t.Error(err)
	}
	p.version = "place:x"
	request.SourceVersion = p.version
	if _, err := List(context.Background(), conn, request, collect(&found)); status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}

func TestProofs(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(p *planted)
		want  Completeness
		code  codes.Code
		prove codes.Code // with RequireProof
	}{
		"none":  {func(p *planted) { p.noProof = true }, Ended, codes.OK, codes.FailedPrecondition},
		"relay": {func(p *planted) { p.scope = "relay" }, ProvenFromRelay, codes.OK, codes.FailedPrecondition},
		"new":   {func(p *planted) { p.scope = "whatever" }, ProvenFromRelay, codes.OK, codes.FailedPrecondition},
		"place": {func(p *planted) { p.scope = "place" }, ProvenForPlace, codes.OK, codes.FailedPrecondition},
		"old":   {func(p *planted) { p.trailer = func(md metadata.MD) { delete(md, "cbt-block-metadata-type") } }, Proven, codes.OK, codes.OK},
		"count": {func(p *planted) { p.trailer = func(md metadata.MD) { md.Set("cbt-tuple-count", "26") } }, UnderWay, codes.DataLoss, codes.DataLoss},
		"digest": {func(p *planted) {
			p.trailer = func(md metadata.MD) { md.Set("cbt-digest", "xxh3-64:2d06800538d394c2") }
		}, UnderWay, codes.DataLoss, codes.DataLoss},
		"capacity": {func(p *planted) { p.trailer = func(md metadata.MD) { md.Set("cbt-volume-capacity-bytes", "1") } }, UnderWay, codes.DataLoss, codes.DataLoss},
		"part":     {func(p *planted) { p.trailer = func(md metadata.MD) { delete(md, "cbt-reported-bytes") } }, UnderWay, codes.DataLoss, codes.DataLoss},
		"scope alone": {func(p *planted) {
			p.trailer = func(md metadata.MD) {
				for key := range md {
					delete(md, key)
				}
				md.Set("cbt-proof-scope", "relay")
			}
		}, UnderWay, codes.DataLoss, codes.DataLoss},
		"twice":         {func(p *planted) { p.trailer = func(md metadata.MD) { md.Append("cbt-tuple-count", "25") } }, UnderWay, codes.DataLoss, codes.DataLoss},
		"version twice": {func(p *planted) { p.version = "a,b" }, UnderWay, codes.DataLoss, codes.DataLoss},
		"version again": {func(p *planted) {
			p.trailer = func(md metadata.MD) { md.Set("cbt-source-version", "v1") }
		}, UnderWay, codes.DataLoss, codes.DataLoss},
		"lost": {func(p *planted) {
			// A message that is lost on the way.
			p.change = func(_ int, message []byte) []byte {
				if len(message) > 60 {
					return message
				}
				return encodeMessage(p.fixed, p.capacity, nil)
			}
			p.tuples[24] = Range{98 * block, 3}
		}, UnderWay, codes.DataLoss, codes.DataLoss},
	} {
		p := volume(false)
		c.plant(p)
		conn := p.start(t)
		result, err := List(context.Background(), conn, Request{Snapshot: "s", RetryFor: -1}, collect(new([]Range)))
		if result.Completeness != c.want || status.Code(err) != c.code {
			t.Errorf("%s: %v, %v", name, result.Completeness, err)
		}
		if _, err := List(context.Background(), conn, Request{Snapshot: "s", RetryFor: -1, RequireProof: true}, collect(new([]Range))); status.Code(err) != c.prove {
			t.Errorf("%s, required: %v", name, err)
		}
	}
}

func TestBrokenRules(t *testing.T) {
	const capacity = 100 * block
	message := func(fixed bool, tuples ...Range) []byte { return encodeMessage(fixed, capacity, tuples) }
	for name, sent := range map[string][]byte{
		"nothing":        {},
		"no type":        message(false)[2:],
		"no capacity":    {8, 1},
		"garbage":        {0xff},
		"cut":            message(false, Range{0, block})[:8],
		"empty tuple":    message(false, Range{0, 0}),
		"overlap":        message(false, Range{0, 2 * block}, Range{block, block}),
		"descending":     message(false, Range{2 * block, block}, Range{0, block}),
		"past the end":   message(false, Range{99 * block, 2 * block}),
		"starts past":    message(true, Range{100 * block, block}),
		"two sizes":      message(true, Range{0, block}, Range{block, 2 * block}),
		"wraps":          message(true, Range{block, 1<<64 - block}),
		"negative":       message(false, Range{1<<64 - block, block}),
		"below":          message(false, Range{0, block}, Range{10 * block, block}),
		"too many":       message(false, Range{20 * block, 1}, Range{21 * block, 1}, Range{22 * block, 1}, Range{23 * block, 1}, Range{24 * block, 1}),
		"tuple as fixed": append(message(false), 3<<3|1, 1, 2, 3, 4, 5, 6, 7, 8),
		"offset as text": append(message(false), 3<<3|2, 2, 1<<3|2, 0),
	} {
		p := &planted{capacity: capacity, noProof: true, change: func(int, []byte) []byte { return sent }}
		result, err := List(context.Background(), p.start(t), Request{Snapshot: "s", StartingOffset: 5 * block, MaxResults: 4}, collect(new([]Range)))
		if status.Code(err) != codes.DataLoss || result.Completeness != UnderWay {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Unknown fields, and fields in any order, are no fault.
	p := &planted{capacity: capacity, noProof: true, change: func(int, []byte) []byte {
		return append([]byte{3<<3 | 2, 4, 2 << 3, 5, 4 << 3, 1, 9<<3 | 2, 1, 0}, message(false)...)
	}}
	var found []Range
	if _, err := List(context.Background(), p.start(t), Request{Snapshot: "s"}, collect(&found)); err != nil || !reflect.DeepEqual(found, []Range{{0, 5}}) {
		t.Errorf("%v: %v", found, err)
	}
}

func TestWithoutAMessage(t *testing.T) {
	address := filepath.Join(t.TempDir(), "s")
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return nil }))
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	conn := dial(t, address)
	for _, c := range []struct {
		request  Request
		code     codes.Code
		capacity uint64
	}{
		{Request{}, codes.DataLoss, 0},
		{Request{Capacity: block}, codes.OK, block},
		{Request{Capacity: block, StartingOffset: 2 * block}, codes.OutOfRange, block},
		{Request{NoMessage: NoMessageAccepted}, codes.OK, 0},
		{Request{NoMessage: NoMessageRefused, Capacity: block}, codes.DataLoss, block},
		{Request{NoMessage: NoMessageAccepted, RequireProof: true}, codes.FailedPrecondition, 0},
	} {
		c.request.Snapshot = "s"
		result, err := List(context.Background(), conn, c.request, collect(new([]Range)))
		if status.Code(err) != c.code || result.Capacity != c.capacity {
			t.Errorf("%+v: %+v: %v", c.request, result, err)
		}
	}
}

func TestLimitsOfTime(t *testing.T) {
	// What ends with OK after the deadline was cut by it.
	address := filepath.Join(t.TempDir(), "s")
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		<-stream.Context().Done()
		return nil
	}))
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	defer server.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := List(ctx, dial(t, address), Request{Snapshot: "s", Capacity: block}, collect(new([]Range))); status.Code(err) != codes.DeadlineExceeded {
		t.Error(err)
	}

	// Without progress a client gives up after its time, and at once if it is set so.
	p := volume(false)
	p.before = func(int, int, uint64) error { return status.Error(codes.Unavailable, "not ready") }
	conn := p.start(t)
	began := time.Now()
	_, err = List(context.Background(), conn, Request{Snapshot: "s", RetryFor: 300 * time.Millisecond}, collect(new([]Range)))
	if status.Code(err) != codes.Unavailable || time.Since(began) < 250*time.Millisecond || p.calls < 3 {
		t.Errorf("%d calls in %v: %v", p.calls, time.Since(began), err)
	}
	p.calls = 0
	if _, err = List(context.Background(), conn, Request{Snapshot: "s", RetryFor: -1}, collect(new([]Range))); status.Code(err) != codes.Unavailable || p.calls != 1 {
		t.Errorf("%d calls: %v", p.calls, err)
	}
	for _, code := range []codes.Code{codes.NotFound, codes.Internal, codes.Canceled, codes.DeadlineExceeded} {
		p.before = func(int, int, uint64) error { return status.Error(code, "planted") }
		p.calls = 0
		if _, err = List(context.Background(), conn, Request{Snapshot: "s"}, collect(new([]Range))); status.Code(err) != code || p.calls != 1 {
			t.Errorf("%v: %d calls: %v", code, p.calls, err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	p.before = func(_, message int, _ uint64) error {
		if message > 0 {
			<-ctx.Done()
			time.Sleep(20 * time.Millisecond)
		}
		return nil
	}
	_, err = List(ctx, conn, Request{Snapshot: "s"}, func([]Range) error { stop(); return nil })
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	for _, request := range []Request{{}, {Snapshot: "s", MaxResults: -1}, {Snapshot: "s", StartingOffset: 1 << 63}} {
		if _, err := List(context.Background(), conn, request, collect(new([]Range))); status.Code(err) != codes.InvalidArgument {
			t.Error(err)
		}
	}
}

// Velero's types, as its package cbtservice has them.
type veleroRange struct {
	Offset uint64
	Length uint64
}

type veleroService interface {
	GetAllocatedBlocks(ctx context.Context, snapshot string, record func([]veleroRange) error) error
	GetChangedBlocks(ctx context.Context, snapshot string, changeID string, record func([]veleroRange) error) error
}

// The sidecar is killed and started again in the middle of an answer.
func TestVeleroSurvivesARestart(t *testing.T) {
	address := filepath.Join(t.TempDir(), "s")
	p := volume(false)
	server := p.at(t, address)
	tokens := 0
	var service veleroService = &BlockService[veleroRange]{Conn: dial(t, address), Request: Request{Namespace: "ns",
		Token: func(context.Context) (string, error) { tokens++; return fmt.Sprintf("token-%d", tokens), nil }}}
	var found []Range
	restarted := false
	gone := make(chan struct{})
	p.before = func(call, message int, _ uint64) error {
		if call == 0 && message == 3 {
			<-gone
		}
		return nil
	}
	err := service.GetChangedBlocks(context.Background(), "today", "handle-yesterday", func(ranges []veleroRange) error {
		for _, each := range ranges {
			found = append(found, Range(each))
		}
		if !restarted && len(found) >= 6 {
			restarted = true
			server.Stop()
			close(gone)
			time.AfterFunc(300*time.Millisecond, func() { p.at(t, address) })
		}
		return nil
	})
	if err != nil || !restarted {
		t.Fatal(err)
	}
	// Nothing is lost, and nothing is seen twice.
	if !reflect.DeepEqual(found, p.wanted()) {
		t.Errorf("found %v", found)
	}
	if p.calls < 2 || p.tokens[len(p.tokens)-1] == p.tokens[0] || p.methods[0] != "/snapshotmetadata.SnapshotMetadata/GetMetadataDelta" {
		t.Errorf("%d calls of %v with %v", p.calls, p.methods, p.tokens)
	}
	fields := p.fields[0]
	if fields[2][0] != "ns" || fields[3][0] != "handle-yesterday" || fields[4][0] != "today" {
		t.Errorf("asked %v", fields)
	}
	found = nil
	if err := service.GetAllocatedBlocks(context.Background(), "today", func(ranges []veleroRange) error {
		found = append(found, make([]Range, len(ranges))...)
		return nil
	}); err != nil || len(found) != 25 {
		t.Errorf("%d ranges: %v", len(found), err)
	}
	if err := service.GetChangedBlocks(context.Background(), "today", "", nil); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// Bytes that change on the way: never a panic; without a proof, never a range out of order.
func TestMutatedMessages(t *testing.T) {
	whole := encodeMessage(false, 100*block, volume(false).tuples[:20])
	for seed := range uint64(20000) {
		random := rand.New(rand.NewPCG(seed, 1))
		message := slices.Clone(whole)
		for range 1 + random.IntN(4) {
			message[random.IntN(len(message))] = byte(random.Uint32())
		}
		message = message[:random.IntN(len(message)+1)]
		check := checker{}
		if check.message(message) != nil {
			continue
		}
		end := uint64(0)
		for _, each := range check.tuples {
			if each.Length == 0 || each.Offset < end || each.Offset >= check.capacity || each.Length > 1<<63 {
				t.Fatalf("seed %d: %v", seed, check.tuples)
			}
			end = each.Offset + each.Length
		}
	}
}

// A server that stops sending: the call fails at the limit, and is not tried again for minutes. What
// the caller takes for itself does not count.
func TestAServerThatIsSilent(t *testing.T) {
	p := volume(false)
	gone := make(chan struct{})
	p.before = func(call, message int, _ uint64) error {
		if call == 0 && message == 2 {
			<-gone
		}
		return nil
	}
	conn := p.start(t)
	defer close(gone)
	var found []Range
	result, err := List(context.Background(), conn, Request{Snapshot: "s", StallTimeout: 200 * time.Millisecond}, collect(&found))
	if status.Code(err) != codes.DeadlineExceeded || result.Completeness != UnderWay || len(p.methods) != 1 {
		t.Errorf("%+v: %v", result, err)
	}
	if len(found) != 2*perMessage || result.ResumeOffset == 0 {
		t.Errorf("%v, resume at %d", found, result.ResumeOffset)
	}
	// Continued by a slow caller.
	request := Request{Snapshot: "s", StallTimeout: 200 * time.Millisecond, StartingOffset: result.ResumeOffset,
		SourceVersion: result.SourceVersion}
	slow := true
	_, err = List(context.Background(), conn, request, func(ranges []Range) error {
		if slow {
			slow = false
			time.Sleep(400 * time.Millisecond)
		}
		found = append(found, ranges...)
		return nil
	})
	if err != nil || !reflect.DeepEqual(found, p.wanted()) {
		t.Errorf("%v: %v", found, err)
	}
}
