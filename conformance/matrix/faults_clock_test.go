package matrix

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// clockVariable holds by how many seconds a program of clockProgram is off.
const clockVariable = "OUTWARD_MATRIX_CLOCK"

var clock struct {
	once    sync.Once
	program string
	err     error
	output  []byte
}

// wallOffset is a function of the runtime's.
const wallOffset = `
var wallKnown bool
var wallSeconds int64

// wallOffset reads the variable once the environment is there.
func wallOffset() int64 {
	if !wallKnown && len(envs) > 0 {
		s := gogetenv("` + clockVariable + `")
		negative := len(s) > 0 && s[0] == '-'
		n := int64(0)
		for _, digit := range s {
			if '0' <= digit && digit <= '9' {
				n = 10*n + int64(digit-'0')
			}
		}
		if negative {
			n = -n
		}
		wallSeconds, wallKnown = n, true
	}
	return wallSeconds
}
`

// clockProgram builds this test program with a runtime whose wall clock is off, and
// whose monotonic clock is not: as if somebody had set the machine's clock.
//
// Go asks the kernel through the vDSO, which no preloaded library gets to see. So
// the one function that has the time, runtime.time_now, is changed in the build: its
// sources come from the tool chain that is at work.
func clockProgram(t *testing.T) string {
	t.Helper()
	clock.once.Do(func() {
		dir, err := os.MkdirTemp("", "outward-clock") //nolint:usetesting // several tests share it
		if err != nil {
			clock.err = err
			return
		}
		clock.program = filepath.Join(dir, "relay")
		goroot, err := exec.Command("go", "env", "GOROOT").Output()
		if err != nil {
			clock.err = err
			return
		}
		source := filepath.Join(strings.TrimSpace(string(goroot)), "src", "runtime")
		replace := map[string]string{}
		put := func(name, from, to string, more string) {
			text, err := os.ReadFile(filepath.Join(source, name))
			if err == nil && !strings.Contains(string(text), from) {
				err = fmt.Errorf("%s has no %q: this tool chain keeps its clock elsewhere", name, from)
			}
			file := filepath.Join(dir, name)
			if err == nil {
				err = os.WriteFile(file, []byte(strings.Replace(string(text), from, to, 1)+more), 0o644)
			}
			clock.err = errors.Join(clock.err, err)
			replace[filepath.Join(source, name)] = file
		}
		if runtime.GOOS == "linux" && runtime.GOARCH == "amd64" {
			put("time_linux_amd64.s", "TEXT time·now<ABIInternal>", "TEXT runtime·realNow<ABIInternal>", "")
			put("timeasm.go", "func time_now() (sec int64, nsec int32, mono int64)", `func time_now() (sec int64, nsec int32, mono int64) {
	sec, nsec, mono = realNow()
	return sec + wallOffset(), nsec, mono
}

func realNow() (sec int64, nsec int32, mono int64)
`, wallOffset)
		} else {
			put("timestub.go", "return sec, nsec, nanotime()", "return sec + wallOffset(), nsec, nanotime()", wallOffset)
		}
		if clock.err != nil {
			return
		}
		overlay, err := json.Marshal(map[string]any{"Replace": replace})
		if err != nil {
			clock.err = err
			return
		}
		file := filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(file, overlay, 0o644); err != nil {
			clock.err = err
			return
		}
		build := exec.Command("go", "test", "-c", "-vet=off", "-overlay="+file, "-o", clock.program, ".")
		clock.output, clock.err = build.CombinedOutput()
	})
	if clock.err != nil {
		t.Fatalf("the program with another clock does not build: %v\n%s", clock.err, clock.output)
	}
	return clock.program
}
