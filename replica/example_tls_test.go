package replica_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"time"

	"github.com/partlog/partlog/replica"
)

// Nodes and clients prove who they are with certificates of one authority (mutual TLS), and a certificate is good for the one node it
// names. Here the authority is made on the spot; else certificates come from files (tls.LoadX509KeyPair).
func ExampleTCPConfig_tls() {
	authority, err := newAuthority()
	if err != nil {
		fmt.Println(err)
		return
	}
	both := func(name string) *tls.Config { // for those who connect, and for connecting
		own, err := authority.certify(name)
		if err != nil {
			fmt.Println(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: authority.pool, ClientCAs: authority.pool, ClientAuth: tls.RequireAndVerifyClientCert}
	}
	admit := func(node replica.NodeID, c net.Conn) error {
		name := c.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
		if node != replica.NoNode && name != fmt.Sprint("node-", node) { // NoNode: a client
			return fmt.Errorf("%q is not node %d", name, node)
		}
		return nil
	}
	wire, err := replica.ListenTCP("127.0.0.1:0", replica.TCPConfig{Self: 1, TLS: both("node-1"), Admit: admit})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer wire.Close()
	node, done, err := oneNode(wire) // a Node over wire, with the partition jobs-0
	if err != nil {
		fmt.Println(err)
		return
	}
	defer done()
	defer node.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	at := map[replica.NodeID]string{1: wire.Addr().String()}
	client, err := replica.NewClient(replica.ClientConfig{Nodes: at, TLS: both("anna"), Admit: admit})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	s, err := client.Status(ctx, jobs)
	fmt.Println("node", s.Leader, "leads,", s.ISR, "in sync", err)

	stranger, err := replica.NewClient(replica.ClientConfig{Nodes: at}) // speaks no TLS
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stranger.Close()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	_, err = stranger.Status(short, jobs)
	fmt.Println("a stranger:", errors.Is(err, context.DeadlineExceeded))
	// Output:
	// node 1 leads, [1] in sync <nil>
	// a stranger: true
}

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, root, root, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, pool: x509.NewCertPool()}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pool.AddCert(a.cert)
	return a, nil
}

// certify is for one of that name at 127.0.0.1.
func (a *authority) certify(name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}, a.cert, &key.PublicKey, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
