// A small web service on Go's net/http: it says hello, after a sleep if one is asked for.
package main

import (
	"flag"
	"log"
	"net/http"
	"time"
)

func main() {
	listen := flag.String("listen", ":8080", "address and port")
	sleep := flag.Duration("sleep", 0, "time every answer takes")
	flag.Parse()
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		time.Sleep(*sleep)
		_, _ = answer.Write([]byte("Hello, World!"))
	})
	log.Printf("listening on %s", *listen)
	log.Fatal(http.ListenAndServe(*listen, nil))
}
