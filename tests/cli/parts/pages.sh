# The pages that --html writes: the document in them, its escaping, and that they need nothing else. Where Chromium is
# installed, what a reader sees is tested, too.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

# whole FILE: succeed if the page has one document, which no byte of a log can leave, and no addresses.
whole() {
    has "$1" 'lang="en"' "default-src 'none'" 'prefers-color-scheme: dark' '@media print' '</html>' || return 1
    sed -n 's/.*<script type="application\/json" id="document">\(.*\)<\/script>$/\1/p' "$1" >document
    [ "$(wc -l <document)" -eq 1 ] && ! grep -q '<' document && ! grep -q '@DOCUMENT@' "$1" &&
        ! sed '/id="document"/d' "$1" | grep -vF http://www.w3.org/2000/svg | grep -qiE '<img|<link|<iframe|src=|https?:|url\(|@import|fetch\('
}

browser=
for name in chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v "$name" || :)
done

# sees FILE TEXT...: succeed if a browser shows each text; without one this cannot be tested.
sees() {
    page=$1
    shift
    [ -n "$browser" ] || return 0
    HOME=$scratch timeout 120 "$browser" --headless --no-sandbox --disable-gpu --dump-dom "file://$scratch/$page" >seen 2>seen.err
    sed 's/<script.*//; s/<[^>]*>//g' seen >text
    has text "$@" || { cat seen.err >>err; false; }
}

printf 'time,key\n' >in
i=0
while [ $i -lt 40 ]; do
    printf '%d,good\n%d,"</script><script>alert(1)</script>"\n%d,"""\047&amp; onload=x\342\200\256\001\377"\n' \
        $((1700000000000000 + i * 1000000)) $((1700000000000000 + i * 1000000)) $((1700000000000000 + i * 1000000))
    i=$((i + 1))
done >>in
run 0 replay -p "$once" --json --html page.html && whole page.html && sed 's/\\u003c/</g' document | cmp - out >>err &&
    has out '"over_time":{"admitted":[' '"begin_us":1700000000000000,"width_us":100000' '"wait":"longer","denied":117,' \
        '"first_denied":{"time_us":1700000001000000' '"last_denied":{"time_us":1700000039000000' && [ "$(grep -o '"worst":.*"waits"' out | grep -o admitted | wc -l)" -eq 3 ]
verdict '--html writes a page with the document that --json prints, and requests over time, of the worst clients and by waits' $?
sees page.html '117 of 120 requests would have been denied (97.5 %), and 3 of 3 clients hit (100.0 %).' \
    'By which limit: fixed_window limit=1 period=1h' 'When: from 2023-11-14T22:13:21Z to 2023-11-14T22:13:59Z' \
    '&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;' '&amp;amp; onload=x\u202e\u0001'
verdict 'the page names the limit and the time, and obeys nothing in a key' $?
run 0 replay -p 'leaky_bucket limit=1 period=1m capacity=20' --html waits.html && whole waits.html && has document '"wait":"longer"' &&
    sees waits.html 'How long requests would have to wait' '60 of 120 requests would have been denied'
verdict 'a page counts the delays of a leaky bucket' $?
run 0 replay -p 'fixed_window limit=9 period=1h' -p "$once" --html two.html && whole two.html && has document '"denied":117,"denied_alone":117'
verdict 'a page has several limits' $?
run 0 replay -p 'fixed_window limit=90 period=1h' --html good.html && whole good.html && has document '"remaining":50,"limit":90' &&
    sees good.html '0 of 120 requests would have been denied' 'with 50 of 90 permits left'
verdict 'a page without denials gives the smallest distance from the limit' $?
run 0 replay -p "$once" -p 'fixed_window limit=9 period=1h' --compare --html side.html && whole side.html &&
    sees side.html 'Of 120 requests, between 93 and 117 would have been denied.' '0.79'
verdict '--compare writes a page' $?
cp page.html before.html
run 0 replay -p "$once" --decisions --html decided.html && [ "$(wc -l <out)" -eq 120 ] && cmp -s decided.html before.html
verdict 'the page is the same beside decisions' $?
run 0 suggest --deny-requests 30 --deny-clients 100 --period 1h --html suggest.html && cp out as_text && whole suggest.html &&
    run 0 suggest --deny-requests 30 --deny-clients 100 --period 1h --json && sed 's/\\u003c/</g' document | cmp - out >>err &&
    sees suggest.html "Suggested: $(sed 1q as_text)" 'The clients that the suggested limit hits' 'the line: the suggested limit'
verdict 'suggest writes a page with the document that --json prints' $?
seq 0 4999 | awk '{ printf "%.0f,%s,1\n", 1700000000000000 + $1 * 1000003, $1 % 2 ? "odd" : "even" }' >in
run 0 replay -p 'fixed_window limit=1 period=365d' --html long.html && whole long.html && has document '"width_us":15000000' &&
    [ "$(sed 's/.*"over_time":{"admitted":\[[0-9,]*\],"denied":\[\([0-9,]*\)\].*/\1/' document | tr ',' '\n' | awk '{ s += $1 } END { print s " " NR }')" = '4998 334' ]
verdict 'the bins widen as the input gets longer, and lose no request' $?
run 1 replay -p "$once" --html no/folder.html && has err 'no/folder.html'
verdict 'a page that cannot be written is an error' $?
if [ -e /dev/full ]; then
    ln -sf /dev/full full.html
    run 1 replay -p "$once" --html full.html && has err 'full.html: cannot write the page'
    verdict 'a page that does not fit is an error' $?
fi
: >in
run 1 replay -p "$once" --html empty.html && has err 'no requests' && [ ! -e empty.html ]
verdict 'an empty input gives no page' $?
