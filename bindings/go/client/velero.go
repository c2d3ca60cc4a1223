package client

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var errNoChangeID = status.Error(codes.InvalidArgument, "client: changed blocks need the id of an earlier snapshot")

// BlockService has the two methods of Velero's CBT service (cbtservice.Service), where R is
// cbtservice.Range:
//
//	var _ cbtservice.Service = (*client.BlockService[cbtservice.Range])(nil)
//
// An iterator that does not resume turns each restart of a sidecar into an error, after which Velero
// takes everything for changed. This one goes on where the stream broke, and checks that the data is
// still the same.
type BlockService[R ~struct {
	Offset uint64
	Length uint64
}] struct {
	// To the sidecar.
	Conn grpc.ClientConnInterface
	// Everything but the snapshots: Namespace and Token, and options. An answer without a message
	// counts as empty unless NoMessage says otherwise: Velero does not use the capacity.
	Request Request
}

// GetAllocatedBlocks calls record with what is allocated in the snapshot of this name.
func (s *BlockService[R]) GetAllocatedBlocks(ctx context.Context, snapshot string, record func([]R) error) error {
	return s.list(ctx, snapshot, "", record)
}

// GetChangedBlocks calls record with what changed since changeID, the CSI handle of an earlier
// snapshot.
func (s *BlockService[R]) GetChangedBlocks(ctx context.Context, snapshot string, changeID string, record func([]R) error) error {
	if changeID == "" {
		return errNoChangeID
	}
	return s.list(ctx, snapshot, changeID, record)
}

func (s *BlockService[R]) list(ctx context.Context, snapshot, base string, record func([]R) error) error {
	request := s.Request
	request.Snapshot, request.Base = snapshot, base
	if request.NoMessage == NoMessageNeedsCapacity && request.Capacity == 0 {
		request.NoMessage = NoMessageAccepted
	}
	var converted []R
	_, err := List(ctx, s.Conn, request, func(ranges []Range) error {
		converted = converted[:0]
		for _, each := range ranges {
			converted = append(converted, R(each))
		}
		return record(converted)
	})
	return err
}
