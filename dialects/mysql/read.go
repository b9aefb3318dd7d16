package mysql

import (
	"database/sql"
	"time"

	"github.com/outward-dev/outward/dialects/internal/reading"
	"github.com/outward-dev/outward/engine"
)

// content is what of a row a foreign writer may have got wrong, as it is scanned.
type content struct {
	headers, text *string
	payload       []byte
	occurred      *int64
}

// decode fills in m; its error is the row's fault.
func (c *content) decode(m *engine.Message) error {
	return reading.Decode(m, reading.Body{Headers: c.headers, Payload: c.payload, Text: c.text, Occurred: instant(c.occurred)})
}

// scanRow reads one row of readSQL; without its body it is not decoded.
func scanRow(rows *sql.Rows, into *[]reading.Row, body bool) error {
	var (
		one     reading.Row
		c       content
		id      []byte
		created *int64
		failing int64
	)
	m := &one.Message
	if err := rows.Scan(&one.Receipt.Seq, &one.Lane, &one.Stamp, &id, &m.Topic, &m.Key, &m.Type,
		&m.AggregateType, &m.AggregateID, &m.AggregateVersion,
		&m.CorrelationID, &m.ContentType, &c.headers, &c.payload, &c.text, &c.occurred, &created,
		&one.Attempts, &one.Crashes, &one.Resends, &one.Company, &one.Later, &failing, &one.Low, &one.Own, &one.Size); err != nil {
		return err
	}
	copy(m.ID[:], id)
	one.Receipt.Scope = reading.Scope(one.Lane, one.Stamp)
	one.FailingFor = time.Duration(failing) * time.Microsecond
	if at := instant(created); at != nil {
		one.CreatedAt = *at
	}
	if body {
		one.Bad = c.decode(m)
	}
	*into = append(*into, one)
	return nil
}
