// main.go - a Go program with cgo: goroutines call libdummy from many threads while the runtime preempts them by signals.
//
// It prints the sum, starts a program, and ends by a status of its own. The runtime's threads have small stacks for
// signals, and its own stacks move; what C is called runs on the threads' first stacks.
package main

// #include "dummy.h"
// #include "tfinject.h"
// static int push(const char *name) { return tfi_range_push(name); }
// static int pop(void) { return tfi_range_pop(); }
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
)

func work(id int, sums []int, wait *sync.WaitGroup) {
	defer wait.Done()
	runtime.LockOSThread() // a stage is its thread's
	defer runtime.UnlockOSThread()
	name := C.CString("goroutine")
	C.push(name)
	for i := 0; i < 500; i++ {
		sums[id] += int(C.dummy_add(C.long(i)))
		if i%50 == 0 {
			runtime.GC()
		}
	}
	C.pop()
}

func main() {
	var wait sync.WaitGroup
	sums := make([]int, 16)
	for id := range sums {
		wait.Add(1)
		go work(id, sums, &wait)
	}
	wait.Wait()
	total := 0
	for _, sum := range sums {
		total += sum
	}
	said, err := exec.Command("echo", "from a child").Output()
	fmt.Print(total, " ", string(said), err, "\n")
	os.Exit(3)
}
