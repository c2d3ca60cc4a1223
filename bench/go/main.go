// A plugin of two bitmaps, once with generated messages and an obvious loop, once with the engine,
// and a client that counts bytes. bench/go/plugins.py runs them.
//
//	bench serve SOCKET generated|engine extents|blocks
//	bench read SOCKET
//	bench calls
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/bits"
	"math/rand"
	"net"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"cbt.example.com/cbt"
	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
)

const (
	words    = (64 << 20) / 8
	block    = 4096
	capacity = words * 64 * block
	most     = 8192
)

// volume makes two bitmaps that differ in some 24 million runs.
func volume() (base, target []uint64) {
	random := rand.New(rand.NewSource(7))
	base, target = make([]uint64, words), make([]uint64, words)
	for i := range base {
		some := random.Uint64() & random.Uint64() & random.Uint64() & random.Uint64()
		if random.Intn(2) == 0 {
			some &= random.Uint64()
		}
		base[i] = random.Uint64()
		target[i] = base[i] ^ some
	}
	return base, target
}

// generated is the plugin as one would write it.
type generated struct {
	csi.UnimplementedSnapshotMetadataServer
	base, target []uint64
	blocks       bool
}

func (g *generated) GetMetadataDelta(request *csi.GetMetadataDeltaRequest, stream csi.SnapshotMetadata_GetMetadataDeltaServer) error {
	kind := csi.BlockMetadataType_VARIABLE_LENGTH
	if g.blocks {
		kind = csi.BlockMetadataType_FIXED_LENGTH
	}
	var some []*csi.BlockMetadata
	flush := func() error {
		err := stream.Send(&csi.GetMetadataDeltaResponse{BlockMetadataType: kind, VolumeCapacityBytes: capacity, BlockMetadata: some})
		some = nil
		return err
	}
	add := func(first, after uint64) error {
		some = append(some, &csi.BlockMetadata{ByteOffset: int64(first * block), SizeBytes: int64((after - first) * block)})
		if len(some) == int(request.MaxResults) {
			return flush()
		}
		return nil
	}
	var start, carry uint64
	for i := range g.base {
		changed := g.base[i] ^ g.target[i]
		if g.blocks {
			for ; changed != 0; changed &= changed - 1 {
				bit := uint64(i)*64 + uint64(bits.TrailingZeros64(changed))
				if err := add(bit, bit+1); err != nil {
					return err
				}
			}
			continue
		}
		edges := changed ^ (changed<<1 | carry)
		carry = changed >> 63
		for ; edges != 0; edges &= edges - 1 {
			bit := uint64(i)*64 + uint64(bits.TrailingZeros64(edges))
			if changed>>(bit%64)&1 == 1 {
				start = bit
			} else if err := add(start, bit); err != nil {
				return err
			}
		}
	}
	if carry != 0 {
		if err := add(start, words*64); err != nil {
			return err
		}
	}
	return flush()
}

func asBytes(bitmap []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(bitmap))), 8*len(bitmap))
}

func serve(socket, how, style string) error {
	base, target := volume()
	server := grpc.NewServer()
	if how == "generated" {
		csi.RegisterSnapshotMetadataServer(server, &generated{base: base, target: target, blocks: style == "blocks"})
	} else {
		answer := func(context.Context, *cbt.Request) (*cbt.Answer, error) {
			cursor, err := cbt.FromBitmaps(asBytes(base), asBytes(target), cbt.Xor,
				cbt.Geometry{Capacity: capacity, Granularity: block}, cbt.BitmapLayout{Pinned: true})
			if err != nil {
				return nil, err
			}
			found := &cbt.Answer{Cursor: cursor, Version: "1"}
			if style == "blocks" {
				found.BlockSize = block
			}
			return found, nil
		}
		if err := cbt.RegisterSnapshotMetadata(server, cbt.ProviderFunc(answer), cbt.ServiceOptions{}); err != nil {
			return err
		}
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return server.Serve(listener)
}

// counter counts what arrives, and keeps nothing.
type counter struct{ bytes, messages int }

type countingCodec struct{}

func (countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*counter).bytes += data.Len()
	v.(*counter).messages++
	return nil
}

func (countingCodec) Name() string { return "proto" }

func read(socket string) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(8<<20), grpc.WithInitialConnWindowSize(8<<20))
	if err != nil {
		return err
	}
	began := time.Now()
	stream, err := conn.NewStream(context.Background(), &grpc.StreamDesc{ServerStreams: true},
		csi.SnapshotMetadata_GetMetadataDelta_FullMethodName, grpc.ForceCodecV2(countingCodec{}))
	if err != nil {
		return err
	}
	// base_snapshot_id, target_snapshot_id, max_results 8192
	if err := stream.SendMsg([]byte("\x0a\x01a\x12\x01b\x20\x80\x40")); err != nil {
		return err
	}
	stream.CloseSend()
	var got counter
	for {
		if err := stream.RecvMsg(&got); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
	}
	fmt.Println(time.Since(began).Seconds(), got.bytes, got.messages)
	return nil
}

// still is a source that covers a little with each call.
type still struct{ at uint64 }

func (s *still) Seek(offset uint64) error { s.at = offset; return nil }

func (s *still) Next(_, _ []uint64) (int, uint64, error) {
	s.at += block
	return 0, s.at, nil
}

// row prints the median of five runs, in time of the processor: others may use the machine.
func row(name string, each int, body func() error) error {
	const least = 200 * time.Millisecond
	var runs []float64
	for range 5 {
		began, turns := processorTime(), 0
		for processorTime()-began < least {
			for range max(1, 10_000/each) {
				if err := body(); err != nil {
					return err
				}
				turns++
			}
		}
		runs = append(runs, float64(processorTime()-began)/float64(turns)/float64(each))
	}
	slices.Sort(runs)
	fmt.Printf("%-40s %8.1f ns\n", name, runs[len(runs)/2])
	return nil
}

func processorTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// readAll seeks to 0 and reads everything.
func readAll(cursor *cbt.Cursor) error {
	if err := cursor.Seek(0); err != nil {
		return err
	}
	for _, err := range cursor.Batches(context.Background()) {
		if err != nil {
			return err
		}
	}
	return nil
}

func calls() error {
	empty, err := cbt.FromExtents(nil, cbt.Geometry{Capacity: capacity, Granularity: block})
	if err != nil {
		return err
	}
	defer empty.Close()
	const steps = 100_000
	source, err := cbt.FromSource(&still{}, cbt.Geometry{Capacity: steps * block, Granularity: block})
	if err != nil {
		return err
	}
	defer source.Close()
	const tuples = 1 << 22
	every, err := cbt.FromBitmap(make55(tuples/4), cbt.Geometry{Capacity: 2 * tuples * block, Granularity: block}, cbt.BitmapLayout{})
	if err != nil {
		return err
	}
	defer every.Close()
	tracker, err := cbt.CreateTracker(cbt.TrackerOptions{Geometry: cbt.Geometry{Capacity: capacity, Granularity: block}})
	if err != nil {
		return err
	}
	defer tracker.Close()
	return errors.Join(
		row("Cursor.Seek, Go to C", 1, func() error { return empty.Seek(0) }),
		row("Source.Next, C to Go", steps, func() error { return readAll(source) }),
		row("an extent of Cursor.Next", tuples, func() error { return readAll(every) }),
		row("Tracker.Begin and Write.End", 1, func() error {
			write, err := tracker.Begin(0, block)
			if err == nil {
				write.End()
			}
			return err
		}))
}

func make55(size int) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = 0x55
	}
	return data
}

func main() {
	var err error
	switch {
	case len(os.Args) == 5 && os.Args[1] == "serve":
		err = serve(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 3 && os.Args[1] == "read":
		err = read(os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == "calls":
		err = calls()
	default:
		log.Fatal("usage: bench serve SOCKET generated|engine extents|blocks | read SOCKET | calls")
	}
	if err != nil {
		log.Fatal(err)
	}
}
