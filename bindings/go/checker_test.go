package cbt

import (
	"context"
	"errors"
	"io"
	"reflect"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages and the trailer of a stream of this package's service.
func answered(t *testing.T) (messages [][]byte, trailer metadata.MD) {
	t.Helper()
	provider := ProviderFunc(func(context.Context, *Request) (*Answer, error) {
		cursor, err := FromExtents([]Extent{{0, 4096}, {8192, 8192}}, volume)
		return &Answer{Cursor: cursor, Version: "1"}, err
	})
	request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "tue")
	request = protowire.AppendVarint(protowire.AppendTag(request, 3, protowire.VarintType), 1)
	stream := open(t, context.Background(), serve(t, provider, ServiceOptions{}), request)
	for {
		var data []byte
		err := stream.RecvMsg(&data)
		if errors.Is(err, io.EOF) {
			return messages, stream.Trailer()
		}
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, data)
	}
}

func mustChecker(t *testing.T, options CheckerOptions) *Checker {
	t.Helper()
	checker, err := NewChecker(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { checker.Close() })
	return checker
}

func TestChecker(t *testing.T) {
	messages, trailer := answered(t)
	checker := mustChecker(t, CheckerOptions{MaxResults: 1, RequireProof: true})
	var found []Extent
	for _, message := range messages {
		tuples, err := checker.Message(message)
		if err != nil {
			t.Fatal(err)
		}
		if tuples.Capacity != volume.Capacity || tuples.Fixed {
			t.Errorf("%+v", tuples)
		}
		for i, offset := range tuples.Offsets {
			found = append(found, Extent{offset, tuples.Lengths[i]})
		}
	}
	if !reflect.DeepEqual(found, []Extent{{0, 4096}, {8192, 8192}}) {
		t.Errorf("found %v", found)
	}
	if received, err := checker.Received(); err != nil || received != (Received{16384, 2, 12288}) {
		t.Errorf("%+v: %v", received, err)
	}
	if proof, err := checker.Finish(trailer); err != nil || proof != ProofHolds {
		t.Errorf("%v: %v", proof, err)
	}
	_, err := checker.Message(messages[0])
	wantCode(t, err, codes.FailedPrecondition)
	checker.Close()
	_, err = checker.Message(messages[0])
	wantCode(t, err, codes.FailedPrecondition)
	_, err = checker.Finish(nil)
	wantCode(t, err, codes.FailedPrecondition)
	_, err = checker.Received()
	wantCode(t, err, codes.FailedPrecondition)
}

// What a server or a network does wrong.
func TestCheckerRefuses(t *testing.T) {
	messages, trailer := answered(t)
	if len(messages) < 2 {
		t.Fatalf("%d messages", len(messages))
	}
	for name, try := range map[string]func(checker *Checker) error{
		"no message": func(checker *Checker) error { _, err := checker.Finish(trailer); return err },
		"a lost message": func(checker *Checker) error {
			if _, err := checker.Message(messages[0]); err != nil {
				t.Error(err)
			}
			_, err := checker.Finish(trailer)
			return err
		},
		"no proof": func(checker *Checker) error {
			for _, message := range messages {
				if _, err := checker.Message(message); err != nil {
					t.Error(err)
				}
			}
			_, err := checker.Finish(metadata.Pairs("other", "text", "some-bin", "\x00"))
			return err
		},
		"the wrong order": func(checker *Checker) error {
			if _, err := checker.Message(messages[1]); err != nil {
				t.Error(err)
			}
			_, err := checker.Message(messages[0])
			return err
		},
		"torn bytes": func(checker *Checker) error { _, err := checker.Message(messages[0][:3]); return err },
		"nothing":    func(checker *Checker) error { _, err := checker.Message(nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			wantCode(t, try(mustChecker(t, CheckerOptions{RequireProof: true})), codes.DataLoss)
		})
	}
	checker := mustChecker(t, CheckerOptions{})
	for _, message := range messages {
		if _, err := checker.Message(message); err != nil {
			t.Error(err)
		}
	}
	if proof, err := checker.Finish(nil); err != nil || proof != ProofAbsent {
		t.Errorf("%v: %v", proof, err)
	}
}
