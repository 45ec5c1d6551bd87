#!/bin/sh
# Prints its argument as a slug, the part of a link that names an article.
printf '%s\n' "$1" |
    tr '[:upper:]' '[:lower:]'
