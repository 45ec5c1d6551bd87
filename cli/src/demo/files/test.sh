#!/bin/sh
# Tests slug.sh: one line a case, and 0 in the end if all is well.
failed=0

check() {
    slug=$(sh slug.sh "$2")
    if [ "$slug" = "$3" ]; then
        echo "ok: $1"
    else
        echo "not ok: $1: the slug of '$2' is '$slug' and should be '$3'"
        failed=1
    fi
}

check 'capitals become small' 'Hello' 'hello'
check 'spaces become hyphens' 'Hello  World' 'hello-world'
check 'punctuation is left out' 'Hello, World!' 'hello-world'
exit "$failed"
