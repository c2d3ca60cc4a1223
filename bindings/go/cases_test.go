package cbt

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// The table of cases that every binding runs; tests/c/make_cases.py says what its lines mean.
const table = "../../tests/c/cases.txt"

type caseStream struct {
	start, most, block uint64
	messages           [][]byte
}

type testCase struct {
	name                 string
	geometry             Geometry
	bitmap, base, target []byte
	operation            Operation
	layout               BitmapLayout
	list, other          []Extent
	expected             []Extent
	transforms           [][]string
	seek                 uint64
	failure              string
	streams              []caseStream
}

var operations = map[string]Operation{"xor": Xor, "and_not": AndNot, "or": Or, "and": And}

func number(t *testing.T, text string) uint64 {
	value, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func unhex(t *testing.T, text string) []byte {
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func parseExtents(t *testing.T, words []string) []Extent {
	extents := []Extent{}
	for _, word := range words {
		offset, length, _ := strings.Cut(word, "+")
		extents = append(extents, Extent{number(t, offset), number(t, length)})
	}
	return extents
}

func readCases(t *testing.T) []testCase {
	file, err := os.Open(table)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var cases []testCase
	var c testCase
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		rest := words[1:]
		switch words[0] {
		case "#":
		case "case":
			c = testCase{name: rest[0]}
		case "geometry":
			c.geometry = Geometry{number(t, rest[0]), number(t, rest[1])}
		case "bitmap":
			c.bitmap = unhex(t, rest[0])
		case "base":
			c.base = unhex(t, rest[0])
		case "target":
			c.target = unhex(t, rest[0])
		case "layout":
			c.layout = BitmapLayout{FirstBit: number(t, rest[0]), MostSignificantFirst: rest[1] != "0",
				Inverted: rest[2] != "0", ReversedWordBytes: uint32(number(t, rest[3]))}
		case "operation":
			c.operation = operations[rest[0]]
		case "extents":
			c.list = parseExtents(t, rest)
		case "other":
			c.other = parseExtents(t, rest)
		case "transform":
			c.transforms = append(c.transforms, rest)
		case "seek":
			c.seek = number(t, rest[0])
		case "error":
			c.failure = rest[0]
		case "expect":
			c.expected = parseExtents(t, rest)
		case "stream":
			c.streams = append(c.streams, caseStream{start: number(t, rest[0]), most: number(t, rest[1]), block: number(t, rest[2])})
		case "message":
			last := &c.streams[len(c.streams)-1]
			last.messages = append(last.messages, unhex(t, rest[0]))
		case "end":
			cases = append(cases, c)
		default:
			t.Fatalf("line %q is not known", words[0])
		}
	}
	if lines.Err() != nil || len(cases) < 100 {
		t.Fatalf("%d cases: %v", len(cases), lines.Err())
	}
	return cases
}

func (c *testCase) cursor(pinned bool) (*Cursor, error) {
	layout := c.layout
	layout.Pinned = pinned
	var cursor *Cursor
	var err error
	switch {
	case c.base != nil:
		cursor, err = FromBitmaps(c.base, c.target, c.operation, c.geometry, layout)
	case c.bitmap != nil:
		cursor, err = FromBitmap(c.bitmap, c.geometry, layout)
	default:
		cursor, err = FromExtents(c.list, c.geometry)
	}
	for _, transform := range c.transforms {
		if err != nil {
			return nil, err
		}
		var n [2]uint64
		for i, word := range transform[1:] {
			n[i], _ = strconv.ParseUint(word, 10, 64)
		}
		switch transform[0] {
		case "coalesce":
			cursor, err = cursor.Coalesce(n[0])
		case "split":
			cursor, err = cursor.Split(n[0])
		case "align_outward":
			cursor, err = cursor.AlignOutward(n[0])
		case "clip":
			cursor, err = cursor.Clip(n[0], n[1])
		case "to_blocks":
			cursor, err = cursor.ToBlocks(n[0])
		default:
			other, made := FromExtents(c.other, c.geometry)
			if made != nil {
				return nil, made
			}
			switch transform[0] {
			case "union":
				cursor, err = Union(cursor, other)
			case "intersect":
				cursor, err = Intersect(cursor, other)
			case "subtract":
				cursor, err = Subtract(cursor, other)
			default:
				return nil, fmt.Errorf("transform %s is not known", transform[0])
			}
		}
	}
	return cursor, err
}

func readAll(t *testing.T, cursor *Cursor) []Extent {
	t.Helper()
	found := []Extent{}
	for extent, err := range cursor.Extents(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, extent)
	}
	return found
}

func codeOf(err error) codes.Code {
	var ours *Error
	if errors.As(err, &ours) {
		return ours.Code
	}
	return codes.Unknown
}

// codeNames has codes as the table spells them.
func codeName(code codes.Code) string {
	text := ""
	for i, letter := range code.String() {
		if i > 0 && letter >= 'A' && letter <= 'Z' {
			text += "_"
		}
		text += string(letter)
	}
	return strings.ToUpper(text)
}

func allocatedRequest(target string, start, most uint64) []byte {
	request := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), target)
	request = protowire.AppendVarint(protowire.AppendTag(request, 2, protowire.VarintType), start)
	return protowire.AppendVarint(protowire.AppendTag(request, 3, protowire.VarintType), most)
}

func (c *testCase) runStream(t *testing.T, want *caseStream) {
	service, err := NewService(ProviderFunc(func(_ context.Context, request *Request) (*Answer, error) {
		if request.Target != "snap" || request.Base != "" {
			return nil, Errorf(codes.NotFound, "asked for %s and %s", request.Target, request.Base)
		}
		cursor, err := c.cursor(true)
		return &Answer{Cursor: cursor, BlockSize: want.block}, err
	}), ServiceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream, err := service.Open(context.Background(), "/csi.v1.SnapshotMetadata/GetMetadataAllocated",
		allocatedRequest("snap", want.start, want.most))
	if err != nil {
		t.Fatal(err)
	}
	service.Close()
	defer stream.Close()
	var messages [][]byte
	for {
		message, err := stream.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, message.Data)
	}
	if !reflect.DeepEqual(messages, want.messages) {
		t.Errorf("%s: the stream from %d has messages %x, not %x", c.name, want.start, messages, want.messages)
	}
	trailer, err := stream.Trailer()
	if err != nil || len(trailer) < 4 {
		t.Errorf("%s: trailer %v: %v", c.name, trailer, err)
	}
}

func TestCases(t *testing.T) {
	for _, c := range readCases(t) {
		for _, pinned := range []bool{false, true} {
			cursor, err := c.cursor(pinned)
			if c.failure != "" {
				if codeName(codeOf(err)) != c.failure {
					t.Errorf("%s: %v instead of %s", c.name, err, c.failure)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			for range 2 {
				if err := cursor.Seek(c.seek); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				if found := readAll(t, cursor); !reflect.DeepEqual(found, c.expected) {
					t.Errorf("%s: %v instead of %v", c.name, found, c.expected)
				}
			}
			cursor.Close()
		}
		for i := range c.streams {
			c.runStream(t, &c.streams[i])
		}
	}
}
