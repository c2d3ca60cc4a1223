package client

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

const block = 4096

// planted is a server of the contract whose faults a test decides.
type planted struct {
	capacity uint64
	fixed    bool
	tuples   []Range
	version  string
	scope    string
	noProof  bool
	// Called for each message; an error ends the call.
	before func(call, message int, start uint64) error
	// Changes what is sent.
	change  func(call int, message []byte) []byte
	trailer func(md metadata.MD)

	mutex   sync.Mutex
	calls   int
	tokens  []string
	methods []string
	fields  []map[protowire.Number][]string
}

func decodeRequest(data []byte) map[protowire.Number][]string {
	fields := map[protowire.Number][]string{}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		data = data[n:]
		if kind == protowire.VarintType {
			value, n := protowire.ConsumeVarint(data)
			fields[number] = append(fields[number], fmt.Sprint(value))
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		fields[number] = append(fields[number], string(value))
		data = data[n:]
	}
	return fields
}

func encodeMessage(fixed bool, capacity uint64, tuples []Range) []byte {
	kind := uint64(2)
	if fixed {
		kind = 1
	}
	message := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), kind)
	message = protowire.AppendVarint(protowire.AppendTag(message, 2, protowire.VarintType), capacity)
	for _, each := range tuples {
		var inner []byte
		if each.Offset != 0 {
			inner = protowire.AppendVarint(protowire.AppendTag(inner, 1, protowire.VarintType), each.Offset)
		}
		inner = protowire.AppendVarint(protowire.AppendTag(inner, 2, protowire.VarintType), each.Length)
		message = protowire.AppendBytes(protowire.AppendTag(message, 3, protowire.BytesType), inner)
	}
	return message
}

const perMessage = 3

func (p *planted) serve(_ any, stream grpc.ServerStream) error {
	var data []byte
	if err := stream.RecvMsg(&data); err != nil {
		return err
	}
	method, _ := grpc.MethodFromServerStream(stream)
	fields := decodeRequest(data)
	kubernetes := strings.HasPrefix(method, kubernetesService)
	number := protowire.Number(2)
	if kubernetes {
		number = 4
	}
	if strings.HasSuffix(method, "Delta") {
		number++
	}
	var start uint64
	for _, text := range fields[number] {
		fmt.Sscan(text, &start)
	}
	p.mutex.Lock()
	call := p.calls
	p.calls++
	p.methods = append(p.methods, method)
	p.fields = append(p.fields, fields)
	version := p.version
	if kubernetes {
		p.tokens = append(p.tokens, strings.Join(fields[1], ""))
	}
	p.mutex.Unlock()
	if version != "" {
		for _, each := range strings.Split(version, ",") {
			stream.SetHeader(metadata.Pairs("cbt-source-version", each))
		}
	}
	var tuples []Range
	digest := xxh3.New()
	var bytes uint64
	for _, each := range p.tuples {
		if each.Offset+each.Length > start {
			tuples = append(tuples, each)
		}
	}
	sent := 0
	for number := 0; ; number++ {
		if p.before != nil {
			if err := p.before(call, number, start); err != nil {
				return err
			}
		}
		some := tuples[sent:min(sent+perMessage, len(tuples))]
		if len(some) == 0 && number > 0 {
			break
		}
		message := encodeMessage(p.fixed, p.capacity, some)
		if p.change != nil {
			message = p.change(call, message)
		}
		if err := stream.SendMsg(&message); err != nil {
			return err
		}
		for _, each := range some {
			var scratch [16]byte
			for i := range 8 {
				scratch[i], scratch[8+i] = byte(each.Offset>>(8*i)), byte(each.Length>>(8*i))
			}
			digest.Write(scratch[:])
			bytes += each.Length
		}
		sent += len(some)
	}
	if p.noProof {
		return nil
	}
	kind := "VARIABLE_LENGTH"
	if p.fixed {
		kind = "FIXED_LENGTH"
	}
	md := metadata.Pairs("cbt-tuple-count", fmt.Sprint(sent), "cbt-reported-bytes", fmt.Sprint(bytes),
		"cbt-starting-offset", fmt.Sprint(start), "cbt-digest", fmt.Sprintf("xxh3-64:%016x", digest.Sum64()),
		"cbt-volume-capacity-bytes", fmt.Sprint(p.capacity), "cbt-block-metadata-type", kind)
	if p.scope != "" {
		md.Append("cbt-proof-scope", p.scope)
	}
	if p.trailer != nil {
		p.trailer(md)
	}
	stream.SetTrailer(md)
	return nil
}

// at starts the server at an address.
func (p *planted) at(t *testing.T, address string) *grpc.Server {
	t.Helper()
	server := grpc.NewServer(grpc.ForceServerCodecV2(codec{}), grpc.UnknownServiceHandler(p.serve))
	listener, err := net.Listen("unix", address)
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	return server
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (p *planted) start(t *testing.T) *grpc.ClientConn {
	t.Helper()
	address := filepath.Join(t.TempDir(), "s")
	p.at(t, address)
	return dial(t, address)
}

func volume(fixed bool) *planted {
	p := &planted{capacity: 100*block - 512, fixed: fixed, version: "v1"}
	for i := range uint64(25) {
		length := uint64(block)
		if !fixed && i%5 == 0 && i < 24 {
			length = 2 * block
		}
		p.tuples = append(p.tuples, Range{(4*i + 3) * block, length})
	}
	if !fixed {
		last := &p.tuples[24]
		last.Length = p.capacity - last.Offset
	}
	return p
}

// wanted is what a client must record.
func (p *planted) wanted() []Range {
	want := slices.Clone(p.tuples)
	for i := range want {
		want[i].Length = min(want[i].Length, p.capacity-want[i].Offset)
	}
	return want
}

func collect(found *[]Range) func([]Range) error {
	return func(ranges []Range) error {
		*found = append(*found, ranges...)
		return nil
	}
}
