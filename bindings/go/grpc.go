package cbt

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
)

// frame is a message as bytes. To this package's codec it is these bytes. To any other codec of
// protobuf it is a message of unknown fields, whose encoding is these bytes too, with a copy.
type frame struct {
	emptypb.Empty
	buffer mem.Buffer // of a message to send
	data   []byte
}

// String shows no content: a request holds secrets.
func (f *frame) String() string { return fmt.Sprintf("a message of %d bytes", len(f.data)) }

// set makes a message to send; data is that of the buffer.
func (f *frame) set(buffer mem.Buffer, data []byte) {
	f.buffer, f.data = buffer, data
	f.ProtoReflect().SetUnknown(data)
}

// forget leaves no pointer to memory that may be freed.
func (f *frame) forget() {
	f.ProtoReflect().SetUnknown(nil)
	f.buffer, f.data = nil, nil
}

// received is the request that a codec wrote.
func (f *frame) received() []byte {
	if unknown := f.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		f.ProtoReflect().SetUnknown(nil)
		return unknown
	}
	return f.data
}

// codec passes everything but frames to the codec that was registered before.
type codec struct{ encoding.CodecV2 }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*frame); ok {
		f.buffer.Ref()
		return mem.BufferSlice{f.buffer}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*frame); ok {
		f.data = data.Materialize()
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

func init() { encoding.RegisterCodecV2(codec{encoding.GetCodecV2(proto.Name)}) }

// messagePool has the buffers of messages that gRPC has sent. They are Go's memory, into which each
// message is copied: gRPC forgets some buffers when a call is canceled, and memory of C would be lost.
type messagePool struct{ pool sync.Pool }

func (p *messagePool) Get(length int) *[]byte {
	if found, _ := p.pool.Get().(*[]byte); found != nil && cap(*found) >= length {
		*found = (*found)[:length]
		return found
	}
	data := make([]byte, length, max(length, 128<<10))
	return &data
}

func (p *messagePool) Put(data *[]byte) { p.pool.Put(data) }

var messages messagePool

// nextFrame is the next message, whose buffer the caller frees.
func (s *Stream) nextFrame(f *frame) error {
	if err := s.lock(); err != nil {
		return err
	}
	defer s.mutex.Unlock()
	if err := s.next(); err != nil {
		return err
	}
	buffer := mem.Copy(s.bytes(), &messages)
	f.set(buffer, buffer.ReadOnlyData())
	return nil
}

func pairs(entries []Metadata) metadata.MD {
	md := metadata.MD{}
	for _, entry := range entries {
		md.Append(entry.Key, entry.Value)
	}
	return md
}

func (s *Service) serveStream(method string, call grpc.ServerStream) error {
	var request frame
	if err := call.RecvMsg(&request); err != nil {
		return err
	}
	data := request.received()
	stream, err := s.Open(call.Context(), method, data)
	clear(data) // the secrets
	if err != nil {
		return err
	}
	defer stream.Close()
	for first := true; ; first = false {
		var message frame
		err := stream.nextFrame(&message)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if first {
			header, err := stream.Header()
			if err == nil {
				err = call.SetHeader(pairs(header))
			}
			if err != nil {
				message.buffer.Free()
				return err
			}
		}
		buffer := message.buffer
		err = call.SendMsg(&message)
		message.forget()
		buffer.Free()
		if err != nil {
			return err
		}
	}
	trailer, err := stream.Trailer()
	if err != nil {
		return err
	}
	call.SetTrailer(pairs(trailer))
	return nil
}

func (s *Service) serveUnary(ctx context.Context, method string, request *frame) (any, error) {
	stream, err := s.Open(ctx, method, request.received())
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	message, err := stream.Next()
	if err == io.EOF {
		return nil, &Error{codes.Internal, method + " has no answer"}
	}
	if err != nil {
		return nil, err
	}
	answer := new(frame)
	answer.set(mem.SliceBuffer(message.Data), message.Data)
	return answer, nil
}

// Register adds the service's methods to a grpc.Server, which goes on serving its other services.
// The service must stay open as long as the server runs.
func (s *Service) Register(server grpc.ServiceRegistrar) {
	services := map[string]*grpc.ServiceDesc{}
	for _, full := range s.Methods() {
		service, method, _ := strings.Cut(strings.TrimPrefix(full, "/"), "/")
		desc := services[service]
		if desc == nil {
			desc = &grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Metadata: "csi.proto"}
			services[service] = desc
		}
		if strings.HasSuffix(service, ".SnapshotMetadata") {
			desc.Streams = append(desc.Streams, grpc.StreamDesc{StreamName: method, ServerStreams: true,
				Handler: func(_ any, call grpc.ServerStream) error { return s.serveStream(full, call) }})
			continue
		}
		desc.Methods = append(desc.Methods, grpc.MethodDesc{MethodName: method,
			Handler: func(server any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				request := new(frame)
				if err := decode(request); err != nil {
					return nil, err
				}
				handle := func(ctx context.Context, request any) (any, error) {
					return s.serveUnary(ctx, full, request.(*frame))
				}
				if interceptor == nil {
					return handle(ctx, request)
				}
				return interceptor(ctx, request, &grpc.UnaryServerInfo{Server: server, FullMethod: full}, handle)
			}})
	}
	for _, desc := range services {
		server.RegisterService(desc, nil)
	}
}

// RegisterSnapshotMetadata makes a service and adds it to a grpc.Server, before the server serves.
// The service lasts as long as the process.
func RegisterSnapshotMetadata(server grpc.ServiceRegistrar, provider Provider, options ServiceOptions) error {
	service, err := NewService(provider, options)
	if err != nil {
		return err
	}
	service.cleanup.Stop()
	service.Register(server)
	return nil
}
