package client

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/zeebo/xxh3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
)

// checker decodes the messages of one call and checks what a receiver may rely on: tuples ascend and
// never overlap, also across messages, are not empty, start below the capacity and end after the
// starting offset; no message has more than max_results; type and capacity are valid and stay.
type checker struct {
	start    uint64
	most     int32
	messages int
	capacity uint64
	fixed    bool
	tuples   []Range // of the last message
	count    uint64
	bytes    uint64
	end      uint64
	block    uint64 // of a FIXED_LENGTH stream
	digest   xxh3.Hasher
	scratch  []byte
}

// varint reads field `number` of a message if it is a varint.
func varint(data []byte) (uint64, []byte, error) {
	value, n := protowire.ConsumeVarint(data)
	if n < 0 {
		return 0, nil, broken("malformed message: %v", protowire.ParseError(n))
	}
	return value, data[n:], nil
}

// field reads a tag. Known fields have the wire type `want`: one that has another would be lost.
func field(data []byte, want func(protowire.Number) protowire.Type) (protowire.Number, []byte, error) {
	number, kind, n := protowire.ConsumeTag(data)
	if n < 0 {
		return 0, nil, broken("malformed message: %v", protowire.ParseError(n))
	}
	data = data[n:]
	wanted := want(number)
	if wanted == kind {
		return number, data, nil
	}
	if wanted >= 0 {
		return 0, nil, broken("malformed message: field %d has wire type %d", number, kind)
	}
	n = protowire.ConsumeFieldValue(number, kind, data)
	if n < 0 {
		return 0, nil, broken("malformed message: %v", protowire.ParseError(n))
	}
	return 0, data[n:], nil
}

func messageField(number protowire.Number) protowire.Type {
	switch number {
	case 1, 2:
		return protowire.VarintType
	case 3:
		return protowire.BytesType
	}
	return -1
}

func tupleField(number protowire.Number) protowire.Type {
	if number == 1 || number == 2 {
		return protowire.VarintType
	}
	return -1
}

// tuple decodes a BlockMetadata.
func tuple(data []byte) (Range, error) {
	var decoded Range
	for len(data) > 0 {
		number, rest, err := field(data, tupleField)
		if err != nil {
			return Range{}, err
		}
		data = rest
		if number == 0 {
			continue
		}
		var value uint64
		if value, data, err = varint(data); err != nil {
			return Range{}, err
		}
		if number == 1 {
			decoded.Offset = value
		} else {
			decoded.Length = value
		}
	}
	return decoded, nil
}

// message decodes and checks the next message; its tuples are c.tuples.
func (c *checker) message(data []byte) error {
	var kind, capacity uint64
	c.tuples = c.tuples[:0]
	for len(data) > 0 {
		number, rest, err := field(data, messageField)
		if err != nil {
			return err
		}
		data = rest
		switch number {
		case 1:
			kind, data, err = varint(data)
		case 2:
			capacity, data, err = varint(data)
		case 3:
			inner, n := protowire.ConsumeBytes(data)
			if n < 0 {
				return broken("malformed message: %v", protowire.ParseError(n))
			}
			var decoded Range
			decoded, err = tuple(inner)
			data = data[n:]
			c.tuples = append(c.tuples, decoded)
		}
		if err != nil {
			return err
		}
	}
	if kind != 1 && kind != 2 {
		return broken("message %d has no valid block_metadata_type", c.messages)
	}
	if capacity == 0 || capacity > math.MaxInt64 {
		return broken("message %d: volume_capacity_bytes is missing or invalid", c.messages)
	}
	if c.messages == 0 {
		c.fixed, c.capacity = kind == 1, capacity
	} else if c.fixed != (kind == 1) || c.capacity != capacity {
		return broken("message %d changes the type or the capacity", c.messages)
	}
	if c.most > 0 && len(c.tuples) > int(c.most) {
		return broken("message %d has %d tuples, max_results is %d", c.messages, len(c.tuples), c.most)
	}
	for _, each := range c.tuples {
		if err := c.check(each); err != nil {
			return err
		}
	}
	c.add()
	c.messages++
	return nil
}

func (c *checker) check(t Range) error {
	wrong := func(format string, arguments ...any) error {
		return broken("tuple %d (byte_offset %d, size_bytes %d) "+format, append([]any{c.count, t.Offset, t.Length}, arguments...)...)
	}
	if t.Length == 0 {
		return wrong("is empty")
	}
	if t.Offset >= c.capacity {
		return wrong("starts past the capacity %d", c.capacity)
	}
	// The last block may end past the capacity, but no end may wrap.
	if t.Length > 1<<63-t.Offset {
		return wrong("ends past the largest possible volume")
	}
	if c.count != 0 && t.Offset < c.end {
		return wrong("starts before the end %d of the previous tuple", c.end)
	}
	if t.Offset+t.Length <= c.start {
		return wrong("ends at or before the starting offset %d", c.start)
	}
	if c.fixed {
		if c.block == 0 {
			c.block = t.Length
		}
		if t.Length != c.block {
			return wrong("in a FIXED_LENGTH stream with block size %d", c.block)
		}
	} else if t.Offset+t.Length > c.capacity {
		return wrong("ends past the capacity %d", c.capacity)
	}
	c.end = t.Offset + t.Length
	c.bytes += t.Length
	c.count++
	return nil
}

// add digests the tuples of a message.
func (c *checker) add() {
	c.scratch = c.scratch[:0]
	for _, each := range c.tuples {
		c.scratch = binary.LittleEndian.AppendUint64(c.scratch, each.Offset)
		c.scratch = binary.LittleEndian.AppendUint64(c.scratch, each.Length)
	}
	c.digest.Write(c.scratch)
}

// proof compares the server's proof with what was received; typed: type and capacity are known.
func (c *checker) proof(trailer metadata.MD, typed bool) (Completeness, error) {
	kind := "VARIABLE_LENGTH"
	if c.fixed {
		kind = "FIXED_LENGTH"
	}
	number := func(value uint64) string { return strconv.FormatUint(value, 10) }
	any := false
	var differs error
	for _, expected := range []struct {
		key, value string
		optional   bool
	}{
		{"cbt-tuple-count", number(c.count), false},
		{"cbt-reported-bytes", number(c.bytes), false},
		{"cbt-starting-offset", number(c.start), false},
		{"cbt-digest", fmt.Sprintf("xxh3-64:%016x", c.digest.Sum64()), false},
		{"cbt-volume-capacity-bytes", number(c.capacity), true},
		{"cbt-block-metadata-type", kind, true},
	} {
		value, found, err := only(trailer, expected.key)
		if err != nil {
			return UnderWay, err
		}
		if expected.optional && !typed {
			continue
		}
		any = any || found
		if value == expected.value || !found && expected.optional || differs != nil {
			continue
		}
		if !found {
			value = "missing"
		}
		differs = broken("does not match the server's proof: %s is %s, received %s", expected.key, value, expected.value)
	}
	scope, found, err := only(trailer, "cbt-proof-scope")
	switch {
	case err != nil:
		return UnderWay, err
	case !any && !found:
		return Ended, nil
	case differs != nil:
		return UnderWay, differs
	case !found:
		return Proven, nil
	case scope == "place":
		return ProvenForPlace, nil
	}
	return ProvenFromRelay, nil
}
