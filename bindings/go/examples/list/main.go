// A backup tool's first half in Go, without cgo: lists what changed between two snapshots of a plugin.
//
//	list unix:///run/csi/csi.sock BASE TARGET
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"cbt.example.com/cbt/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

func main() {
	if len(os.Args) != 4 {
		log.Fatal("usage: list ADDRESS BASE TARGET")
	}
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	// [list]
	request := client.Request{Base: os.Args[2], Snapshot: os.Args[3]}
	result, err := client.List(context.Background(), conn, request, func(ranges []client.Range) error {
		for _, each := range ranges {
			fmt.Println(each.Offset, each.Length)
		}
		return nil
	})
	if err != nil {
		log.Fatal(err) // what was printed is no answer
	}
	fmt.Println("complete:", result.ReportedBytes, "bytes,", result.Completeness)
	// [/list]
}
