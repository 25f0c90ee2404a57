// The one program of the tests' image: it runs until it is asked to end, takes
// two seconds for that, and leaves a mark of having come so far.
package main

import (
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	if len(os.Args) < 2 {
		<-asked // the sandbox of a pod
		return
	}
	<-asked
	time.Sleep(2 * time.Second)
	if err := os.WriteFile(os.Args[1], []byte("ended in order\n"), 0o600); err != nil {
		log.Fatal(err)
	}
}
