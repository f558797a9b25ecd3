# A service that never heard of SCTP sends every line back.
while read -r line; do
  echo "$line"
done
