package main

import (
	"context"
	"crypto/rand"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outward-dev/outward/internal/testservers"
)

// The README shows this very program.
func TestTheREADMEShowsThisProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(program), "func main() {")
	body, _, _ = strings.Cut(body, "\nfunc must")
	if !strings.Contains(string(readme), "func main() {"+body) {
		t.Error("the README's program is not the one in examples/small/main.go")
	}
}

// It does what the README says.
func TestTheProgramRelaysItsMessage(t *testing.T) {
	dsn, url := testservers.DSN(t, "pg17"), testservers.URL(t, "rabbitmq4")
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	database := "small_" + strings.ToLower(rand.Text()[:10])
	if _, err := pool.Exec(t.Context(), "CREATE DATABASE "+database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pool, err := pgxpool.New(context.Background(), dsn)
		if err == nil {
			defer pool.Close()
			_, err = pool.Exec(context.Background(), "DROP DATABASE "+database+" WITH (FORCE)")
		}
		if err != nil {
			t.Errorf("the database stays behind: %v", err)
		}
	})
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("orders", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := ch.QueueDelete("orders", false, false, false); err != nil {
			t.Errorf("the queue stays behind: %v", err)
		}
	}()
	in, err := ch.Consume("orders", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("ORDERS_DB", strings.Replace(dsn, "/outbox?", "/"+database+"?", 1))
	t.Setenv("AMQP_URL", url)
	ended := make(chan struct{})
	go func() { defer close(ended); main() }()
	select {
	case d := <-in:
		if string(d.Body) != `{"order":42}` || d.Type != "order.submitted.v1" {
			t.Errorf("it came as %q, type %q", d.Body, d.Type)
		}
	case <-time.After(30 * time.Second):
		t.Error("nothing came within 30 seconds")
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-ended
}
