package matrix

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/outward-dev/outward/engine"
	"github.com/outward-dev/outward/transports/natsjs"
)

// NATS servers in this process, each with the settings that a test is about. What
// a proxy can only pretend in transports/natsjs is said here by a server.

// natsServer starts one by a configuration and stops it at the end.
func natsServer(t *testing.T, config string) *server.Server {
	t.Helper()
	s := startNATS(t, config, func(*server.Options) {})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	return s
}

// startNATS does not wait for it, and change has the last word on the settings.
func startNATS(t *testing.T, config string, change func(*server.Options)) *server.Server {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := server.ProcessConfigFile(file)
	if err != nil {
		t.Fatal(err)
	}
	o.Host, o.NoLog, o.NoSigs = "127.0.0.1", true, true
	if o.Port == 0 || o.Port == server.DEFAULT_PORT {
		o.Port = server.RANDOM_PORT
	}
	change(o)
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

func addressOf(s *server.Server) string { return s.Addr().String() }

// natsTransport returns a transport that is closed at the end.
func natsTransport(t *testing.T, url string, opts *natsjs.Options) *natsjs.Transport {
	t.Helper()
	tr, err := natsjs.New(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := tr.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return tr
}

func outgoing(n int) []engine.Outgoing {
	msgs := make([]engine.Outgoing, n)
	for i := range msgs {
		msgs[i].Message = engine.Message{ID: engine.NewID(), Topic: "t", Type: "t.v1", Payload: fmt.Appendf(nil, "%d", i)}
	}
	return msgs
}

// send publishes and returns the results, and how many of them each word of class
// and code has: "" is confirmed.
func send(t *testing.T, tr *natsjs.Transport, subject string, msgs []engine.Outgoing) ([]engine.Result, map[string]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	results := make([]engine.Result, len(msgs))
	tr.Publish(ctx, subject, msgs, func(i int, r engine.Result) { results[i] = r })
	count := map[string]int{}
	for _, r := range results {
		count[word(r.Fault)]++
	}
	return results, count
}

func word(f *engine.Fault) string {
	if f == nil {
		return ""
	}
	return f.Class.String() + " " + f.Code
}

func wantAll(t *testing.T, tr *natsjs.Transport, subject string, want string) {
	t.Helper()
	if results, count := send(t, tr, subject, outgoing(50)); count[want] != 50 {
		t.Errorf("%s: %v, want all %q; %v", subject, count, want, results[0].Fault)
	}
}

func probe(t *testing.T, tr *natsjs.Transport, subject, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if f := tr.Probe(ctx, subject); word(f) != want {
		t.Errorf("Probe of %q: %v, want %q", subject, f, want)
	}
}

func connectJetStream(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func makeStream(t *testing.T, url string, cfg jetstream.StreamConfig, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	js := connectJetStream(t, url, opts...)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := js.CreateStream(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	return js
}

// Users who may do less than all; and every way to log in that a password is for.
func TestNATSPermissions(t *testing.T) {
	s := natsServer(t, fmt.Sprintf(`
		jetstream: {store_dir: %q}
		authorization: {users: [
			{user: admin, password: "S3CRET/%%"}
			{user: writer, password: w, permissions: {publish: ["orders.good"], subscribe: ["_INBOX.>"]}}
			{user: asker, password: a, permissions: {publish: ["orders.good", "$JS.API.>"], subscribe: ["_INBOX.>"]}}
			{user: own, password: o, permissions: {publish: ["orders.good"], subscribe: ["_INBOX_own.>"]}}
		]}`, t.TempDir()))
	at := addressOf(s)
	js := makeStream(t, "nats://"+at, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}, nats.UserInfo("admin", "S3CRET/%"))

	admin := natsTransport(t, "nats://admin:S3CRET%2F%25@"+at, nil)
	wantAll(t, admin, "orders.good", "")
	callback := natsTransport(t, "nats://"+at, &natsjs.Options{Credentials: func(context.Context) (string, string, error) { return "admin", "S3CRET/%", nil }})
	wantAll(t, callback, "orders.good", "")
	wrong := natsTransport(t, "nats://admin:S3CRET@"+at, nil)
	wantAll(t, wrong, "orders.good", "unavailable auth")
	probe(t, wrong, "", "unavailable auth")
	nobody := natsTransport(t, "nats://"+at, nil)
	wantAll(t, nobody, "orders.good", "unavailable auth")

	writer := natsTransport(t, "nats://writer:w@"+at, nil)
	for range 2 {
		wantAll(t, writer, "orders.bad", "destination_failed permission")
		wantAll(t, writer, "orders.good", "")
	}
	probe(t, writer, "", "") // may not ask, and so the next message is the trial
	probe(t, writer, "orders.good", "")
	wantAll(t, writer, "orders.\"quoted\\é", "destination_failed permission")

	asker := natsTransport(t, "nats://asker:a@"+at, nil)
	probe(t, asker, "orders.good", "")
	probe(t, asker, "nowhere", "destination_failed no_stream")

	deaf := natsTransport(t, "nats://own:o@"+at, nil)
	wantAll(t, deaf, "orders.good", "unavailable permission")
	own := natsTransport(t, "nats://own:o@"+at, &natsjs.Options{InboxPrefix: "_INBOX_own"})
	wantAll(t, own, "orders.good", "")

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	info, err := js.Stream(ctx, "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if n := info.CachedInfo().State.Msgs; n != 5*50 {
		t.Errorf("%d messages in the stream, want 250", n)
	}
}

// No JetStream on the server; on the server, but not for the account; and an
// account that has used up what it may store.
func TestNATSJetStreamMissingOrFull(t *testing.T) {
	plain := natsTransport(t, "nats://"+addressOf(natsServer(t, "")), nil)
	wantAll(t, plain, "orders", "unavailable no_jetstream")
	probe(t, plain, "", "unavailable no_jetstream")
	probe(t, plain, "orders", "unavailable no_jetstream")

	s := natsServer(t, fmt.Sprintf(`
		jetstream: {store_dir: %q}
		accounts: {
			A: {users: [{user: a, password: a}], jetstream: {max_file: 100KB, max_mem: 1MB}}
			B: {users: [{user: b, password: b}]}
		}`, t.TempDir()))
	at := addressOf(s)
	without := natsTransport(t, "nats://b:b@"+at, nil)
	probe(t, without, "", "unavailable 10039")
	if _, count := send(t, without, "orders", outgoing(5)); count["unavailable 10039"] != 5 {
		t.Errorf("%v, want all unavailable 10039", count)
	}

	makeStream(t, "nats://"+at, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}}, nats.UserInfo("a", "a"))
	full := natsTransport(t, "nats://a:a@"+at, nil)
	msgs := outgoing(50)
	for i := range msgs {
		msgs[i].Payload = make([]byte, 10_000)
	}
	_, count := send(t, full, "orders", msgs)
	if count[""] == 0 || count["destination_failed 10002"] == 0 || len(count) != 2 {
		t.Errorf("%v, want some confirmed and the rest destination_failed 10002", count)
	}
}

// TLS: by the URL, asked for by the server, handshake first, with a client's
// certificate, and none of it with a certificate that is not known.
func TestNATSTLS(t *testing.T) {
	dir := t.TempDir()
	roots, client := certificates(t, dir)
	config := func(more string) string {
		return fmt.Sprintf("jetstream: {store_dir: %q}\ntls: {cert_file: %q, key_file: %q, ca_file: %q, %s}",
			t.TempDir(), dir+"/server.pem", dir+"/server.key", dir+"/ca.pem", more)
	}
	trusted := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	at := addressOf(natsServer(t, config("verify: false")))
	probe(t, natsTransport(t, "tls://"+at, &natsjs.Options{TLS: trusted}), "", "")
	probe(t, natsTransport(t, "nats://"+at, &natsjs.Options{TLS: trusted}), "", "")
	probe(t, natsTransport(t, "tls://"+at, nil), "", "unavailable tls")
	probe(t, natsTransport(t, "nats://"+at, nil), "", "unavailable tls")

	at = addressOf(natsServer(t, config("verify: true")))
	mutual := trusted.Clone()
	mutual.Certificates = []tls.Certificate{client}
	probe(t, natsTransport(t, "tls://"+at, &natsjs.Options{TLS: mutual}), "", "")
	probe(t, natsTransport(t, "tls://"+at, &natsjs.Options{TLS: trusted}), "", "unavailable tls")

	at = addressOf(natsServer(t, config("handshake_first: true")))
	probe(t, natsTransport(t, "tls://"+at, &natsjs.Options{TLS: trusted, TLSFirst: true}), "", "")
	probe(t, natsTransport(t, "tls://"+at, &natsjs.Options{TLS: trusted, DialTimeout: 500 * time.Millisecond}), "", "unavailable timeout")
}

// certificates makes a CA, a server's certificate in dir, and a client's.
func certificates(t *testing.T, dir string) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	key := func() *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "outward test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	caKey := key()
	ca, err := x509.CreateCertificate(rand.Reader, template, template, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf := *template
	leaf.SerialNumber, leaf.IsCA = big.NewInt(2), false
	leafKey := key()
	der, err := x509.CreateCertificate(rand.Reader, &leaf, template, &leafKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(leafKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string][]byte{"ca.pem": pemOf("CERTIFICATE", ca), "server.pem": pemOf("CERTIFICATE", der), "server.key": pemOf("PRIVATE KEY", encoded)} {
		if err := os.WriteFile(filepath.Join(dir, name), block, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(ca)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: leafKey}
}

// A token, an NKey, and a creds file of the decentralised kind, which is read at
// every dial: one that is replaced works from then on.
func TestNATSLogins(t *testing.T) {
	at := addressOf(natsServer(t, `authorization: {token: "t0ken"}`))
	probe(t, natsTransport(t, "nats://t0ken@"+at, nil), "", "unavailable no_jetstream")
	probe(t, natsTransport(t, "nats://"+at, &natsjs.Options{Token: func(context.Context) (string, error) { return "t0ken", nil }}), "", "unavailable no_jetstream")
	probe(t, natsTransport(t, "nats://wrong@"+at, nil), "", "unavailable auth")

	dir := t.TempDir()
	user := must(nkeys.CreateUser())
	public, seed := must(user.PublicKey()), must(user.Seed())
	file := filepath.Join(dir, "user.nk")
	write(t, file, seed)
	at = addressOf(natsServer(t, fmt.Sprintf(`authorization: {users: [{nkey: %s}]}`, public)))
	probe(t, natsTransport(t, "nats://"+at, &natsjs.Options{NKeyFile: file}), "", "unavailable no_jetstream")
	other := must(nkeys.CreateUser())
	write(t, file+"2", must(other.Seed()))
	probe(t, natsTransport(t, "nats://"+at, &natsjs.Options{NKeyFile: file + "2"}), "", "unavailable auth")

	operator, acc := must(nkeys.CreateOperator()), must(nkeys.CreateAccount())
	operatorJWT := must(jwt.NewOperatorClaims(must(operator.PublicKey())).Encode(operator))
	accClaims := jwt.NewAccountClaims(must(acc.PublicKey()))
	accJWT := must(accClaims.Encode(operator))
	at = addressOf(natsServer(t, fmt.Sprintf("operator: %s\nresolver: MEMORY\nresolver_preload: {%s: %s}", operatorJWT, must(acc.PublicKey()), accJWT)))
	creds := func(expires time.Time) []byte {
		claims := jwt.NewUserClaims(public)
		claims.Expires = expires.Unix()
		text := must(claims.Encode(acc))
		return must(jwt.FormatUserConfig(text, seed))
	}
	file = filepath.Join(dir, "user.creds")
	write(t, file, creds(time.Now().Add(-time.Hour)))
	tr := natsTransport(t, "nats://"+at, &natsjs.Options{CredsFile: file})
	probe(t, tr, "", "unavailable auth")
	write(t, file, creds(time.Now().Add(time.Hour)))
	deadline := time.Now().Add(10 * time.Second)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		f := tr.Probe(ctx, "")
		cancel()
		if f != nil && strings.Contains(f.Error(), string(seed)) {
			t.Fatal("the error tells the seed")
		}
		if word(f) == "unavailable no_jetstream" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(f)
		}
		time.Sleep(20 * time.Millisecond) // polling: a failed dial is not repeated at once
	}
}

// must is for what can't fail here.
func must[V any](v V, err error) V {
	if err != nil {
		panic(err)
	}
	return v
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// A server that shuts down in good order stops its streams before it asks its clients
// to go (lameDuckMode in nats-server), so what reaches it between the two is never
// answered: Unknown, and no more of it than one call was sending. What was confirmed
// is in the stream when the server is back.
func TestNATSLameDuck(t *testing.T) {
	config := fmt.Sprintf("jetstream: {store_dir: %q}", t.TempDir())
	s := startNATS(t, config, func(o *server.Options) {
		o.LameDuckDuration, o.LameDuckGracePeriod = 2*time.Second, time.Second // less than a file may say
	})
	if !s.ReadyForConnections(20 * time.Second) {
		t.Fatal("the server does not start")
	}
	makeStream(t, "nats://"+addressOf(s), jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}})
	tr := natsTransport(t, "nats://"+addressOf(s), nil)
	wantAll(t, tr, "orders", "")
	confirmed, unknown := 50, 0
	var ending sync.WaitGroup
	ending.Go(s.LameDuckShutdown)
	deadline := time.Now().Add(20 * time.Second)
	for {
		_, count := send(t, tr, "orders", outgoing(20))
		for w, n := range count {
			switch w {
			case "":
				confirmed += n
			case "unknown connection_lost":
				unknown += n
			case "unavailable refused", "unavailable connection_lost", "unavailable handshake":
			default:
				t.Errorf("%v while the server shuts down in good order", count)
			}
		}
		if count["unavailable refused"] > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the server is still there")
		}
	}
	ending.Wait()
	if unknown > 20 {
		t.Errorf("%d messages are unknown, want no more than one call's 20", unknown)
	}
	s = natsServer(t, config)
	js := connectJetStream(t, "nats://"+addressOf(s))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := js.Stream(ctx, "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	if n := int(stream.CachedInfo().State.Msgs); n < confirmed || n > confirmed+unknown {
		t.Errorf("the stream has %d messages; %d were confirmed and %d are unknown", n, confirmed, unknown)
	}
}

// A cluster of three loses the leader of a stream with three replicas, twice, under
// load: what is confirmed is there, each message once, and what one key has sent
// one after another is in order.
func TestNATSClusterLosesItsLeader(t *testing.T) {
	servers, urls := natsCluster(t)
	admin := "nats://" + strings.Join(urls, ",nats://")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	js := makeStream(t, admin, jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders"}, Replicas: 3, Duplicates: time.Hour}, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	tr := natsTransport(t, admin, nil)

	var stop atomic.Bool
	var publishing sync.WaitGroup
	const keys = 20
	sent := make([][]engine.Outgoing, keys)
	words := map[string]int{}
	publishing.Go(func() {
		for !stop.Load() {
			// A wave: of each key the next message, or again the one that failed.
			wave := make([]engine.Outgoing, keys)
			for k := range wave {
				if n := len(sent[k]); n > 0 && sent[k][n-1].Resends < 0 {
					wave[k] = sent[k][n-1]
					wave[k].Resends = 0
					continue
				}
				wave[k] = outgoing(1)[0]
				wave[k].Key = fmt.Sprint(k)
				sent[k] = append(sent[k], wave[k])
			}
			results, count := send(t, tr, "orders", wave)
			for w, n := range count {
				words[w] += n
			}
			for k, r := range results {
				last := &sent[k][len(sent[k])-1]
				if last.Resends = 0; r.Fault != nil {
					last.Resends = -1 // to be sent again
				}
			}
		}
	})
	for range 2 {
		time.Sleep(300 * time.Millisecond) // some load between two faults
		leader := ""
		for leader == "" {
			if st, err := js.Stream(ctx, "ORDERS"); err == nil && st.CachedInfo().Cluster != nil {
				leader = st.CachedInfo().Cluster.Leader
			}
			if ctx.Err() != nil {
				t.Fatal("no leader")
			}
		}
		if err := servers[leader].JetStreamStepdownStream(server.DEFAULT_GLOBAL_ACCOUNT, "ORDERS"); err != nil {
			t.Log("step down:", err)
		}
	}
	time.Sleep(300 * time.Millisecond)
	for name, s := range servers { // and now a server for good
		if st, err := js.Stream(ctx, "ORDERS"); err == nil && st.CachedInfo().Cluster.Leader == name {
			s.Shutdown()
			break
		}
	}
	time.Sleep(time.Second)
	stop.Store(true)
	publishing.Wait()
	t.Log(words)
	for w := range words {
		switch strings.Fields(w + " .")[0] {
		case "rejected", "destination_failed":
			t.Errorf("%q while a cluster elects", w)
		}
	}
	// What is still open, to its end.
	for k := range sent {
		last := &sent[k][len(sent[k])-1]
		for last.Resends < 0 {
			again := *last
			again.Resends = 0
			if _, count := send(t, tr, "orders", []engine.Outgoing{again}); count[""] == 1 {
				last.Resends = 0
			}
			if ctx.Err() != nil {
				t.Fatal("the cluster does not come back")
			}
		}
	}
	st := must(js.Stream(ctx, "ORDERS"))
	n := int(st.CachedInfo().State.Msgs)
	consumer := must(st.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{}))
	batch := must(consumer.Fetch(n, jetstream.FetchMaxWait(30*time.Second)))
	next := make([]int, keys)
	total := 0
	for m := range batch.Messages() {
		total++
		k := must(strconv.Atoi(m.Headers().Get("outward-key")))
		if next[k] >= len(sent[k]) || m.Headers().Get("ce-id") != sent[k][next[k]].ID.String() {
			t.Fatalf("key %d: message %d is out of order, or there twice", k, next[k])
		}
		next[k]++
	}
	for k := range sent {
		if next[k] != len(sent[k]) {
			t.Errorf("key %d: %d of %d messages are there", k, next[k], len(sent[k]))
		}
	}
	t.Log(total, "messages")
}

// natsCluster starts three servers and waits for their leader.
func natsCluster(t *testing.T) (byName map[string]*server.Server, addresses []string) {
	t.Helper()
	byName = map[string]*server.Server{}
	var routes []string // known before the servers are
	for range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, ln.Addr().String())
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		name := fmt.Sprintf("n%d", i+1)
		byName[name] = startNATS(t, fmt.Sprintf(`server_name: %s
			jetstream: {store_dir: %q}
			cluster: {name: outward, listen: %q, routes: ["nats-route://%s"]}`,
			name, t.TempDir(), routes[i], strings.Join(routes, `", "nats-route://`)), func(*server.Options) {})
	}
	for _, s := range byName {
		if !s.ReadyForConnections(30 * time.Second) {
			t.Fatal("a server does not start")
		}
		addresses = append(addresses, addressOf(s))
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		for _, s := range byName {
			if s.JetStreamIsLeader() && len(s.JetStreamClusterPeers()) == 3 {
				return byName, addresses
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the cluster has no leader")
		}
		time.Sleep(20 * time.Millisecond) // polling
	}
}
