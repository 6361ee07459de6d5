#!/bin/sh
# Makes the certificates of this folder again; they are for tests only, and last a hundred years.
set -e
cd "$(dirname "$0")"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256; }  # PKCS #8, as Java wants it
ca() { key > "$1.key"; openssl req -x509 -new -key "$1.key" -subj "/CN=PocketMQ test $1" -days 36500 -out "$1.pem"; }
signed() {  # name, extensions
    key > "$1.key"
    printf '%s\n' "$2" > "$1.ext"
    openssl req -new -key "$1.key" -subj "/CN=$1" |
        openssl x509 -req -CA ca.pem -CAkey ca.key -set_serial "$3" -days 36500 -extfile "$1.ext" -out "$1.crt"
    cat "$1.crt" "$1.key" > "$1.pem"
    rm "$1.key" "$1.crt" "$1.ext"
}
ca ca
ca other_ca
signed server "subjectAltName=DNS:localhost,IP:127.0.0.1" 1
signed elsewhere "subjectAltName=DNS:mq.example.org" 2
signed client "extendedKeyUsage=clientAuth" 3
openssl pkcs8 -topk8 -in client.pem -passout pass:open-sesame -out client_locked.key
rm ca.key other_ca.key
