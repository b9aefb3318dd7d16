package config

import (
	"crypto/tls"
	"crypto/x509"
)

// readTLS reads {ca, cert, key, server_name}. Certificates are always verified.
func readTLS(m *mapping) *tls.Config {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: m.text("server_name", "")}
	if ca := m.contents("ca"); ca != nil {
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(ca) {
			m.fault("ca", "the file holds no certificate in PEM form")
		}
	}
	cert, key := m.contents("cert"), m.contents("key")
	switch {
	case m.has("cert") != m.has("key"):
		m.fault("cert", "cert and key belong together; give both, or neither")
	case cert != nil && key != nil:
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			m.fault("cert", "cert and key are not a pair in PEM form")
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	m.close()
	return conf
}
