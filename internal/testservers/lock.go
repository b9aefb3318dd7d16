package testservers

import (
	"os"
	"path/filepath"
	"sync"
)

// Test programs of several packages run at a time and share the servers. Those that
// use servers hold a lock together; a test that kills or freezes one holds it alone.
//
// There is one lock for all servers, and a test must not hold it when it asks to
// have it alone: so no two programs can wait for each other. Before taking the lock
// everybody passes a gate, and who waits to have the lock alone keeps the gate shut;
// else a stream of short tests could make them wait for ever.
var held struct {
	sync.Mutex
	users int  // tests of this program that use servers
	alone bool // one of them does harm
	gate  *os.File
	lock  *os.File
}

// A program that a test starts belongs to the test: it takes no lock.
const heldVariable = "OUTWARD_TEST_LOCK_HELD"

func using(t T) {
	t.Helper()
	held.Lock()
	defer held.Unlock()
	if held.alone || (held.users == 0 && os.Getenv(heldVariable) != "") {
		return
	}
	if held.users == 0 {
		gate, lock := files(t)
		take(t, gate, false)
		take(t, lock, false)
		release(t, gate)
		held.lock = lock
		mark(t, true)
	}
	held.users++
	t.Cleanup(func() {
		held.Lock()
		defer held.Unlock()
		if held.users--; held.users == 0 {
			mark(t, false)
			release(t, held.lock)
		}
	})
}

func alone(t T) {
	t.Helper()
	held.Lock()
	defer held.Unlock()
	if held.alone || (held.users == 0 && os.Getenv(heldVariable) != "") {
		return // a second server, or a program that a test started
	}
	if held.users > 0 {
		t.Fatalf("testservers.Control comes first in a test, before it asks for an address: it waits for all others to end")
	}
	gate, lock := files(t)
	take(t, gate, true)
	take(t, lock, true)
	held.gate, held.lock, held.alone = gate, lock, true
	mark(t, true)
	t.Cleanup(func() {
		held.Lock()
		defer held.Unlock()
		mark(t, false)
		held.alone = false
		release(t, held.lock)
		release(t, held.gate)
	})
}

func mark(t T, on bool) {
	t.Helper()
	err := os.Unsetenv(heldVariable)
	if on {
		err = os.Setenv(heldVariable, "1")
	}
	if err != nil {
		t.Fatalf("testservers: %v", err)
	}
}

func files(t T) (gate, lock *os.File) {
	t.Helper()
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(os.TempDir(), name), os.O_RDONLY|os.O_CREATE, 0o644)
		if err != nil {
			t.Fatalf("testservers: %v", err)
		}
		return f
	}
	return open("outward-test-gate.lock"), open("outward-test-servers.lock")
}

func take(t T, f *os.File, exclusive bool) {
	t.Helper()
	if err := lockFile(f, exclusive); err != nil {
		t.Fatalf("testservers: lock %s: %v", f.Name(), err)
	}
}

// release closes f, and that gives up the lock.
func release(t T, f *os.File) {
	t.Helper()
	if err := f.Close(); err != nil {
		t.Fatalf("testservers: give up the lock: %v", err)
	}
}
