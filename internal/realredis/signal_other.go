//go:build !unix

package realredis

import "errors"

func (p *process) suspend() error { return errors.ErrUnsupported }

func (p *process) resume() error { return errors.ErrUnsupported }
