package cbt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthserver "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const allocatedMethod = "/csi.v1.SnapshotMetadata/GetMetadataAllocated"

// serve returns a connection to a server of the provider, beside another service.
func serve(t *testing.T, provider Provider, options ServiceOptions, more ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer(more...)
	grpc_health_v1.RegisterHealthServer(server, healthserver.NewServer())
	if err := RegisterSnapshotMetadata(server, provider, options); err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(t.TempDir(), "csi.sock")
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	conn, err := grpc.NewClient("unix:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop() })
	return conn
}

// raw is a codec of bytes, as another client would see them.
type raw struct{}

func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}
func (raw) Name() string { return "proto" }

func open(t *testing.T, ctx context.Context, conn *grpc.ClientConn, request []byte) grpc.ClientStream {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, allocatedMethod, grpc.ForceCodecV2(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.SendMsg(&request); err != nil {
		t.Fatal(err)
	}
	stream.CloseSend()
	return stream
}

// receive returns the number of tuples, and how the stream ended.
func receive(stream grpc.ClientStream) (tuples int, err error) {
	for {
		var data []byte
		if err := stream.RecvMsg(&data); err != nil {
			return tuples, err
		}
		for len(data) > 0 {
			field, kind, n := protowire.ConsumeTag(data)
			if n < 0 {
				return tuples, errors.New("malformed")
			}
			n += max(protowire.ConsumeFieldValue(field, kind, data[n:]), 0)
			data = data[n:]
			if field == 3 {
				tuples++
			}
		}
	}
}

// everyOther answers with every other block, so that no two of them are one extent.
func everyOther(blocks int) ProviderFunc {
	bits := make([]byte, blocks/8)
	for i := range bits {
		bits[i] = 0x55
	}
	return func(context.Context, *Request) (*Answer, error) {
		cursor, err := FromBitmap(bits, Geometry{uint64(blocks) * 4096, 4096}, BitmapLayout{Pinned: true})
		return &Answer{Cursor: cursor, Version: "one"}, err
	}
}

func waitUntil(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
		runtime.GC()
	}
}

func TestServed(t *testing.T) {
	conn := serve(t, everyOther(1<<20), ServiceOptions{PluginName: "go.example.com"})
	stream := open(t, context.Background(), conn, allocatedRequest("snap", 0, 0))
	if tuples, err := receive(stream); tuples != 1<<19 || err != io.EOF {
		t.Errorf("%d tuples: %v", tuples, err)
	}
	header, _ := stream.Header()
	if len(header.Get("cbt-source-version")) != 1 || stream.Trailer().Get("cbt-tuple-count")[0] != fmt.Sprint(1<<19) {
		t.Errorf("header %v, trailer %v", header, stream.Trailer())
	}
	// The other service of the server, over the same codec.
	health, err := grpc_health_v1.NewHealthClient(conn).Check(context.Background(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil || health.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v: %v", health, err)
	}
	var answer, nothing []byte
	if err := conn.Invoke(context.Background(), "/csi.v1.Identity/GetPluginInfo", &nothing, &answer, grpc.ForceCodecV2(raw{})); err != nil {
		t.Error(err)
	}
	if !strings.Contains(string(answer), "go.example.com") {
		t.Errorf("GetPluginInfo answers %q", answer)
	}
}

func TestErrorsReachTheClient(t *testing.T) {
	captureLog(t)
	var leaked []string
	SetLeakHandler(func(what string) { leaked = append(leaked, what) })
	defer SetLeakHandler(nil)
	for name, c := range map[string]struct {
		provider ProviderFunc
		code     codes.Code
		text     string
	}{
		"ours": {func(context.Context, *Request) (*Answer, error) {
			return nil, Errorf(codes.NotFound, "no snapshot %s", "x")
		}, codes.NotFound, "no snapshot x"},
		"gRPC's": {func(context.Context, *Request) (*Answer, error) { return nil, status.Error(codes.Unavailable, "later") }, codes.Unavailable, "later"},
		"wrapped": {func(context.Context, *Request) (*Answer, error) {
			return nil, fmt.Errorf("see: %w", Errorf(codes.NotFound, "x"))
		}, codes.NotFound, "x"},
		"other":   {func(context.Context, *Request) (*Answer, error) { return nil, errors.New("hm") }, codes.Unknown, "hm"},
		"nothing": {func(context.Context, *Request) (*Answer, error) { return nil, nil }, codes.Internal, "neither"},
		"panic":   {func(context.Context, *Request) (*Answer, error) { panic("password") }, codes.Internal, "Provider.Open panicked"},
		"closed": {func(ctx context.Context, request *Request) (*Answer, error) {
			answer, err := everyOther(64)(ctx, request)
			answer.Cursor.Close()
			return answer, err
		}, codes.Internal, "closed"},
		"both": {func(ctx context.Context, request *Request) (*Answer, error) {
			answer, _ := everyOther(64)(ctx, request)
			return answer, Errorf(codes.Aborted, "both")
		}, codes.Aborted, "both"},
		"blocks": {func(ctx context.Context, request *Request) (*Answer, error) {
			answer, err := everyOther(64)(ctx, request)
			answer.BlockSize = 1 << 63
			return answer, err
		}, codes.InvalidArgument, ""},
	} {
		conn := serve(t, c.provider, ServiceOptions{})
		tuples, err := receive(open(t, context.Background(), conn, allocatedRequest("snap", 0, 0)))
		if status.Code(err) != c.code && name != "blocks" || err == io.EOF || tuples != 0 || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %d tuples: %v", name, tuples, err)
		}
		if strings.Contains(err.Error(), "password") {
			t.Errorf("%s: the client sees %v", name, err)
		}
		_, err = receive(open(t, context.Background(), conn, []byte("\xff\xff")))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a request of nonsense: %v", err)
		}
		_, err = receive(open(t, context.Background(), conn, allocatedRequest("", 0, 0)))
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("a request without a snapshot: %v", err)
		}
	}
	runtime.GC()
	runtime.GC()
	if len(leaked) != 0 {
		t.Errorf("leaked %v", leaked)
	}
}

// Clients that go away in the middle: the stream ends, and its source is closed.
func TestClientsThatVanish(t *testing.T) {
	var mutex sync.Mutex
	sources, closed := 0, 0
	provider := ProviderFunc(func(context.Context, *Request) (*Answer, error) {
		mutex.Lock()
		sources++
		mutex.Unlock()
		at := uint64(0)
		cursor, err := FromSource(&closing{scripted{seek: func(offset uint64) error { at = offset; return nil },
			next: func(offsets, lengths []uint64) (int, uint64, error) {
				for i := range offsets {
					offsets[i], lengths[i] = at, 4096
					at += 8192
				}
				return len(offsets), at, nil
			}}, func() { mutex.Lock(); closed++; mutex.Unlock() }}, Geometry{1 << 60, 4096})
		return &Answer{Cursor: cursor}, err
	})
	conn := serve(t, provider, ServiceOptions{})
	for i := range 24 {
		ctx, cancel := context.WithCancel(context.Background())
		stream := open(t, ctx, conn, allocatedRequest("snap", 0, 0))
		for range i % 4 {
			var data []byte
			if err := stream.RecvMsg(&data); err != nil {
				t.Fatal(err)
			}
		}
		if i%3 == 0 {
			time.Sleep(5 * time.Millisecond) // until flow control holds messages back
		}
		cancel()
	}
	// A connection that is gone.
	other := serve(t, provider, ServiceOptions{})
	open(t, context.Background(), other, allocatedRequest("snap", 0, 0))
	time.Sleep(20 * time.Millisecond)
	other.Close()
	waitUntil(t, "sources are not closed", func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return sources == closed && sources > 0
	})
}

type closing struct {
	scripted
	close func()
}

func (c *closing) Close() error { c.close(); return nil }

// The end of the call's context reaches a provider and a source that work.
func TestCancellationReachesTheProvider(t *testing.T) {
	type key struct{}
	canceled := make(chan error, 1)
	provider := ProviderFunc(func(ctx context.Context, request *Request) (*Answer, error) {
		if ctx.Value(key{}) != "outer" {
			return nil, errors.New("the context is another one")
		}
		<-ctx.Done()
		canceled <- ctx.Err()
		return nil, ctx.Err()
	})
	conn := serve(t, provider, ServiceOptions{}, grpc.StreamInterceptor(
		func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(server, wrapped{stream, context.WithValue(stream.Context(), key{}, "outer")})
		}))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := receive(open(t, ctx, conn, allocatedRequest("snap", 0, 0))); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("ended with %v", err)
	}
	if err := <-canceled; err == nil {
		t.Error("the provider saw no end")
	}

	service, err := NewService(ProviderFunc(func(ctx context.Context, _ *Request) (*Answer, error) {
		cursor, err := FromSource(&scripted{next: func(_, _ []uint64) (int, uint64, error) {
			<-ctx.Done()
			return 0, 4096, nil
		}}, Geometry{1 << 60, 4096})
		return &Answer{Cursor: cursor}, err
	}), ServiceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	stream, err := service.Open(ctx, allocatedMethod, allocatedRequest("snap", 0, 0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Next()
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the stream ended with %v", err)
	}
	if _, err := stream.Trailer(); err == nil {
		t.Error("a stream that failed has a trailer")
	}
	stream.Close()
	stream.Close()
	_, err = stream.Next()
	wantCode(t, err, codes.FailedPrecondition)
	service.Close()
	_, err = service.Open(context.Background(), allocatedMethod, allocatedRequest("snap", 0, 0))
	wantCode(t, err, codes.FailedPrecondition)
}

type wrapped struct {
	grpc.ServerStream
	ctx context.Context
}

func (w wrapped) Context() context.Context { return w.ctx }

func TestSecrets(t *testing.T) {
	var kept *Request
	conn := serve(t, ProviderFunc(func(ctx context.Context, request *Request) (*Answer, error) {
		kept = request
		value, ok := request.Secret("user")
		if _, other := request.Secret("other"); !ok || other {
			return nil, errors.New("wrong secrets")
		}
		return nil, Errorf(codes.NotFound, "%d", len(value))
	}), ServiceOptions{}, grpc.StreamInterceptor(
		// Such an interceptor logs requests.
		func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			return handle(server, logging{stream, t})
		}))
	entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "user")
	entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), "hunter2")
	request := protowire.AppendBytes(protowire.AppendTag(allocatedRequest("snap", 0, 0), 4, protowire.BytesType), entry)
	if _, err := receive(open(t, context.Background(), conn, request)); status.Convert(err).Message() != "7" {
		t.Error(err)
	}
	if value, ok := kept.Secret("user"); ok || value != "" {
		t.Error("a secret outlives the callback")
	}
}

type logging struct {
	grpc.ServerStream
	t *testing.T
}

func (l logging) RecvMsg(m any) error {
	err := l.ServerStream.RecvMsg(m)
	if text := fmt.Sprintf("%v %s", m, m); strings.Contains(text, "hunter2") {
		l.t.Errorf("a log shows %s", text)
	}
	return err
}

// foreign knows messages of protobuf only, as codecs of other packages do.
type foreign struct{}

func (foreign) Marshal(v any) ([]byte, error)      { return proto.Marshal(v.(proto.Message)) }
func (foreign) Unmarshal(data []byte, v any) error { return proto.Unmarshal(data, v.(proto.Message)) }
func (foreign) Name() string                       { return "proto" }

func TestAnotherCodec(t *testing.T) {
	for name, option := range map[string]grpc.ServerOption{
		"of the server": grpc.ForceServerCodec(foreign{}),
		"counted":       grpc.StatsHandler(counting{}),
	} {
		conn := serve(t, everyOther(1<<20), ServiceOptions{PluginName: "go.example.com"}, option)
		stream := open(t, context.Background(), conn, allocatedRequest("snap", 0, 0))
		if tuples, err := receive(stream); tuples != 1<<19 || err != io.EOF {
			t.Errorf("%s: %d tuples: %v", name, tuples, err)
		}
		var answer, nothing []byte
		err := conn.Invoke(context.Background(), "/csi.v1.Identity/GetPluginInfo", &nothing, &answer, grpc.ForceCodecV2(raw{}))
		if err != nil || !strings.Contains(string(answer), "go.example.com") {
			t.Errorf("%s: %q: %v", name, answer, err)
		}
	}
	if counted.Load() < 1<<20 {
		t.Errorf("the handler of statistics saw %d bytes", counted.Load())
	}
	if _, ok := encoding.GetCodecV2("proto").(codec); !ok {
		t.Error("the codec is not registered")
	}
}

var counted atomic.Int64

type counting struct{}

func (counting) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (counting) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (counting) HandleConn(context.Context, stats.ConnStats)                       {}
func (counting) HandleRPC(_ context.Context, event stats.RPCStats) {
	if out, ok := event.(*stats.OutPayload); ok {
		counted.Add(int64(out.Length))
	}
}

// Many streams at once, while memory is collected, over one service.
func TestStreamsAtOnce(t *testing.T) {
	conn := serve(t, everyOther(1<<18), ServiceOptions{})
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			start := uint64(i) * 8192 * 1000
			stream := open(t, metadata.NewOutgoingContext(context.Background(), nil), conn, allocatedRequest("snap", start, 100))
			if tuples, err := receive(stream); tuples != 1<<17-1000*i || err != io.EOF {
				t.Errorf("from %d: %d tuples: %v", start, tuples, err)
			}
		})
		runtime.GC()
	}
	wait.Wait()
}
