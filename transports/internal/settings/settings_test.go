package settings_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/outward-dev/outward/transports/internal/settings"
)

func TestDefaults(t *testing.T) {
	var c settings.Checks
	var source, name string
	var wait, timeout time.Duration
	var number int
	var log *slog.Logger
	c.Text(&name, "x")
	c.Source(&source)
	c.Duration("Wait", &wait, 2*time.Second, time.Second, time.Minute)
	c.Timeout("Timeout", &timeout, 3*time.Second)
	c.Number("Number", &number, 4, 5)
	c.Logger(&log)
	c.Add(error(nil))
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	if name != "x" || source != "/outward" || wait != 2*time.Second || timeout != 3*time.Second || number != 4 || log == nil {
		t.Errorf("%q %q %v %v %d %v", name, source, wait, timeout, number, log)
	}
}

func TestEverythingWrongIsSaidAtOnce(t *testing.T) {
	var c settings.Checks
	source, wait, timeout, number := "%zz", time.Hour, -time.Second, 6
	c.Source(&source)
	c.Duration("Wait", &wait, 0, time.Second, time.Minute)
	c.Timeout("Timeout", &timeout, time.Second)
	c.Number("Number", &number, 4, 5)
	c.Add(errors.New("one more"))
	c.Addf("and %s", "another")
	want := strings.Join([]string{
		`Source "%zz" is not a URI reference`,
		"Wait is 1h0m0s; it must be from 1s to 1m0s",
		"Timeout is -1s; it must be from 1ms to 1h0m0s",
		"Number is 6; it must be from 1 to 5",
		"one more", "and another",
	}, "\n")
	if err := c.Err(); err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}
