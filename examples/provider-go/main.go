// A storage plugin in plain Go, without cgo: `cbtctl serve --provider` asks it what changed.
package main

import (
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "example.com/provider-go/providerv1"
)

const block, blocks = 4096, 16

// [storage]
// What the storage knows: a bit for each block that was written since the volume was made, at each
// of two snapshots.
var snapshots = map[string][]byte{
	"monday":  {0x0f, 0x00},
	"tuesday": {0x3f, 0x80},
}

// [/storage]

// [provider]
type provider struct {
	pb.UnimplementedSnapshotProviderServer
}

// Open answers one stream: a head, the bitmap, and an end that counts its bytes.
func (provider) Open(request *pb.OpenRequest, stream grpc.ServerStreamingServer[pb.Answer]) error {
	target, known := snapshots[request.TargetSnapshotId]
	base, baseKnown := snapshots[request.BaseSnapshotId]
	if !known || (request.BaseSnapshotId != "" && !baseKnown) {
		return status.Error(codes.NotFound, "no such snapshot")
	}
	head := &pb.Head{CapacityBytes: block * blocks, GranularityBytes: block, Content: pb.Content_BITMAP}
	if err := stream.Send(&pb.Answer{Part: &pb.Answer_Head{Head: head}}); err != nil {
		return err
	}
	bits := make([]byte, len(target))
	copy(bits, target)
	for i := range base { // without a base, everything that is allocated
		bits[i] ^= base[i]
	}
	// Larger bitmaps go in pieces of 256 KiB or so.
	if err := stream.Send(&pb.Answer{Part: &pb.Answer_Bitmap{Bitmap: bits}}); err != nil {
		return err
	}
	end := &pb.End{Count: uint64(len(bits))}
	return stream.Send(&pb.Answer{Part: &pb.Answer_End{End: end}})
}

// [/provider]

// [serve]
func main() {
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterSnapshotProviderServer(server, provider{})
	log.Fatal(server.Serve(listener))
}

// [/serve]
