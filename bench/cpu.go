package main

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/seed-ce352c9b/redlock/internal/realredis"
)

// serverCPU is what all servers together have used so far, as far as they say so.
func serverCPU(ctx context.Context, servers []*realredis.Server) (sum time.Duration) {
	for _, s := range servers {
		c := s.Client()
		info, _ := c.Info(ctx, "cpu").Result()
		c.Close()
		for line := range strings.Lines(info) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if name == "used_cpu_sys" || name == "used_cpu_user" {
				seconds, _ := strconv.ParseFloat(value, 64)
				sum += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return sum
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }
