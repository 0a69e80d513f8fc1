# The pages that --html writes: their contents, their escaping, and that they need nothing else.
# shellcheck shell=sh disable=SC2154 # run.sh reads this and sets the variables used here

# whole FILE: succeed if the page is one document whose elements are closed, without scripts and without addresses.
whole() {
    has "$1" '<!DOCTYPE html>' 'lang="en"' "default-src 'none'" 'prefers-color-scheme:dark' '@media print' '</html>' &&
        ! grep -qiE '<script|<img|<link|<iframe|https?:|url\(|@import|<[^>]* on[a-z]+=' "$1" || return 1
    for element in html head body main section h2 table tbody caption tr td figure svg div p bdi code; do
        opened=$(grep -oE "<$element[ >]" "$1" | wc -l)
        closed=$(grep -o "</$element>" "$1" | wc -l)
        [ "$opened" -eq "$closed" ] || { echo "($1: $opened $element opened, $closed closed)" >>err; return 1; }
    done
}

# number ELEMENT FILE: the number of its elements, which may stand on one line.
number() {
    grep -oF -e "$1" "$2" | wc -l
}

printf 'time,key\n' >in
i=0
while [ $i -lt 40 ]; do
    printf '%d,good\n%d,"<script>alert(1)</script>"\n%d,"""\047&amp; onload=x\342\200\256\001\377"\n' \
        $((1700000000000000 + i * 1000000)) $((1700000000000000 + i * 1000000)) $((1700000000000000 + i * 1000000))
    i=$((i + 1))
done >>in
run 0 replay -p "$once" --html page.html && whole page.html &&
    has page.html '117 of 120 requests would have been denied (97.5 %), and 3 of 3 clients hit (100.0 %).' \
        'By which limit: <code>fixed_window limit=1 period=1h</code>' 'When: from 2023-11-14T22:13:21Z to 2023-11-14T22:13:59Z' &&
    has out 'requests                   120'
verdict '--html writes a page whose verdict names the client, the limit and the time' $?
has page.html '&#60;script&#62;alert(1)&#60;/script&#62;' '&#34;&#39;&#38;amp; onload=x\u202e\x01\xff'
verdict 'a page escapes keys, and shows characters that change the text direction' $?
[ "$(number 'class="small"' page.html)" -eq 3 ] && [ "$(number 'role="img" aria-label=' page.html)" -eq 4 ] &&
    [ "$(number 'scope="col"' page.html)" -ge 8 ]
verdict 'a page draws the most denied clients over time, and describes charts and columns' $?
has page.html '<tr><td>longer</td><td class="n">117</td>'
verdict 'a page counts denials by their waits' $?
run 0 replay -p 'leaky_bucket limit=1 period=1m capacity=20' --html waits.html && whole waits.html &&
    has waits.html 'the time that the limit spreads them over'
verdict 'a page counts the delays of a leaky bucket' $?
run 0 replay -p 'fixed_window limit=9 period=1h' -p "$once" --html two.html && whole two.html &&
    has two.html '117 of 120' '2 limits decided together'
verdict 'a page shows several limits side by side' $?
run 0 replay -p 'fixed_window limit=90 period=1h' --html good.html && whole good.html &&
    has good.html '0 of 120 requests would have been denied' 'with 50 of 90 permits left'
verdict 'a page without denials gives the smallest distance from the limit' $?
run 0 replay -p "$once" -p 'fixed_window limit=9 period=1h' --compare --html side.html && whole side.html &&
    has side.html 'Of 120 requests, between 93 and 117 would have been denied.' '0.79'
verdict '--compare writes a page' $?
run 0 replay -p 'fixed_window limit=500 period=1h' -p 'fixed_window limit=900 period=1h' --compare --html side.html &&
    has side.html 'None of the policies would have denied any of 120 requests.'
verdict 'the verdict of --compare says that no policy denies any request' $?
run 0 replay -p "$once" -p 'fixed_window limit=1 period=2h' --compare --html side.html &&
    has side.html 'Each policy would have denied 117 of 120 requests.'
verdict 'the verdict of --compare says that all policies deny the same number' $?
run 0 replay -p "$once" --decisions --html decided.html && [ "$(wc -l <out)" -eq 120 ] && cmp -s decided.html page.html
verdict 'the page is the same beside decisions' $?
run 0 suggest --deny-requests 30 --deny-clients 100 --period 1h --html suggest.html && whole suggest.html &&
    has suggest.html "<code>$(sed 1q out)</code>" '<polyline' '&#60;script&#62;' 'The clients that the suggested limit hits' \
    '<path class="mark" d="M' '<strong>suggested</strong>'
verdict 'suggest writes a page with its curve' $?
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
